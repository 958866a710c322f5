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

// Rank 0 sends this to each other rank, then a text: the tuning and the topology, or the message of an error.
struct FactsMessage {
  Host host = {};
  Link between = {};
  int64_t error = -1;  // a Code, or -1
  int64_t tuning_bytes = 0, topology_bytes = 0;
};
constexpr int64_t kFactsMessageBytes = sizeof(FactsMessage);

// Returns the text of the tuning file, or "" if it was measured on another machine.
std::string read_own_tuning(const std::string& file) {
  if (file.empty()) return "";
  const Tuning tuning = read_tuning(file);
  if (tuning.machine.empty() || tuning.machine == machine_name()) return to_text(tuning);
  log_warning("tuning file " + file + " was measured on \"" + tuning.machine + "\", but this is \"" + machine_name() +
              "\": it is left out; herd bench OP --tune measures again");
  return "";
}

// Returns the text of the topology, or "" if none is given.
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
  FactsMessage message;
  std::string text;
  if (world.rank() == 0) {
    if (probed) facts.between = measure::rounded(*probed);
    if (memory) facts.host = measure::with_memory(facts.host, *memory);
    facts.host.cores = cores_for_ranks_of_host(world.engine().transport());
    message = {facts.host, facts.between};
    try {
      const std::string tuning = read_own_tuning(given.tuning_file);
      const std::string topology = read_own_topology(given.topology, world);
      message.tuning_bytes = static_cast<int64_t>(tuning.size());
      message.topology_bytes = static_cast<int64_t>(topology.size());
      text = tuning + topology;
    } catch (const Error& error) {
      message.error = static_cast<int64_t>(error.code());
      text = error.message();
    } catch (const std::exception& error) {  // such as bad_alloc; the other ranks must not wait
      message.error = static_cast<int64_t>(Code::kBadConfig);
      text = "topology " + given.topology + " or tuning " + given.tuning_file + ": " + error.what();
    }
    if (message.error >= 0) message.tuning_bytes = static_cast<int64_t>(text.size());
    for (Rank peer = 1; peer < world.size(); ++peer) {
      send_now(world, {&message, kFactsMessageBytes, DType::kU8}, peer, kFactsTag, {.name = "facts"});
      if (!text.empty()) {
        send_now(world, {text.data(), static_cast<int64_t>(text.size()), DType::kU8}, peer, kFactsTag,
                 {.name = "given facts"});
      }
    }
  } else {
    receive_now(world, {&message, kFactsMessageBytes, DType::kU8}, 0, kFactsTag, {.name = "facts"});
    text.resize(static_cast<size_t>(message.tuning_bytes + message.topology_bytes));
    if (!text.empty()) {
      receive_now(world, {text.data(), static_cast<int64_t>(text.size()), DType::kU8}, 0, kFactsTag,
                  {.name = "given facts"});
    }
  }
  if (message.error >= 0) throw Error(static_cast<Code>(message.error), text);
  facts.host = message.host;
  facts.between = message.between;
  const std::string_view all = text;
  const auto tuning_bytes = static_cast<size_t>(message.tuning_bytes);
  if (message.tuning_bytes > 0) facts.tuning = parse_tuning(all.substr(0, tuning_bytes));
  if (message.topology_bytes > 0) facts.topology = parse_topology(all.substr(tuning_bytes));
}

}  // namespace herd::comm
