#include "herd/comm/world_facts.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <string_view>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/comm/core_share.h"
#include "herd/comm/transfer.h"
#include "herd/comm/world_probes.h"
#include "herd/measure/figures.h"
#include "herd/topology/discover.h"
#include "herd/topology/load_topology.h"
#include "herd/topology/topology_text.h"

namespace herd::comm {
namespace {

constexpr int kFactsTag = std::numeric_limits<int>::min();

struct Said {  // by rank 0 to each other rank; then text: the tuning and the topology, or why there is none
  Host host = {};
  Link between = {};
  int64_t error = -1;  // a Code
  int64_t tuning_bytes = 0, topology_bytes = 0;
};
constexpr int64_t kSaidBytes = sizeof(Said);

// The text of the file, or "" where it does not count here.
std::string read_own_tuning(const std::string& file) {
  if (file.empty()) return "";
  const Tuning tuning = read_tuning(file);
  if (tuning.machine.empty() || tuning.machine == machine_name()) return to_text(tuning);
  log_warning("tuning file " + file + " was measured on \"" + tuning.machine + "\", but this is \"" + machine_name() +
              "\": it is left out; herd bench OP --tune measures again");
  return "";
}

// The text of the topology, or "" where none is given.
std::string read_own_topology(const std::string& name, GroupState& world) {
  if (name.empty()) return "";
  const Topology topology = [&] {
    try {
      return load_topology(name);
    } catch (const Error& error) {
      throw Error(error.code(), "topology " + error.message());
    }
  }();
  check_topology_of_ranks(topology, world.size(), world.hosts());
  if (cuts_hosts(topology, world.hosts())) {
    log_info("topology " + name + " cuts a host into several: between these, messages pass");
  }
  return to_text(topology);
}

}  // namespace

void share_facts(GroupState& world, const GivenFacts& given, WorldFacts& facts) {
  const std::optional<Link> probed = probe_links(world);
  const std::optional<measure::MemoryProbe> memory = probe_memory(world);
  Said said;
  std::string text;
  if (world.rank() == 0) {
    if (probed) facts.between = measure::rounded(*probed);
    if (memory) facts.host = measure::with_memory(facts.host, *memory);
    facts.host.cores = cores_of_host(world.engine().transport());
    said = {facts.host, facts.between};
    try {
      const std::string tuning = read_own_tuning(given.tuning_file);
      const std::string topology = read_own_topology(given.topology, world);
      said.tuning_bytes = static_cast<int64_t>(tuning.size());
      said.topology_bytes = static_cast<int64_t>(topology.size());
      text = tuning + topology;
    } catch (const Error& error) {
      said.error = static_cast<int64_t>(error.code());
      text = error.message();
    } catch (const std::exception& error) {  // no memory, for one: the others must not wait
      said.error = static_cast<int64_t>(Code::kBadConfig);
      text = "topology " + given.topology + " or tuning " + given.tuning_file + ": " + error.what();
    }
    if (said.error >= 0) said.tuning_bytes = static_cast<int64_t>(text.size());
    for (Rank peer = 1; peer < world.size(); ++peer) {
      send_now(world, {&said, kSaidBytes, DType::kU8}, peer, kFactsTag, {.name = "facts"});
      if (!text.empty()) {
        send_now(world, {text.data(), static_cast<int64_t>(text.size()), DType::kU8}, peer, kFactsTag,
                 {.name = "given facts"});
      }
    }
  } else {
    receive_now(world, {&said, kSaidBytes, DType::kU8}, 0, kFactsTag, {.name = "facts"});
    text.resize(static_cast<size_t>(said.tuning_bytes + said.topology_bytes));
    if (!text.empty()) {
      receive_now(world, {text.data(), static_cast<int64_t>(text.size()), DType::kU8}, 0, kFactsTag,
                  {.name = "given facts"});
    }
  }
  if (said.error >= 0) throw Error(static_cast<Code>(said.error), text);
  facts.host = said.host;
  facts.between = said.between;
  const std::string_view all = text;
  const auto tuning_bytes = static_cast<size_t>(said.tuning_bytes);
  if (said.tuning_bytes > 0) facts.tuning = parse_tuning(all.substr(0, tuning_bytes));
  if (said.topology_bytes > 0) facts.topology = parse_topology(all.substr(tuning_bytes));
}

}  // namespace herd::comm
