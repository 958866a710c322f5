#include "herd/comm/world_facts.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "herd/base/error.h"
#include "herd/base/log.h"
#include "herd/comm/core_share.h"
#include "herd/comm/link_probe.h"
#include "herd/comm/transfer.h"
#include "herd/topology/probe.h"

namespace herd::comm {
namespace {

constexpr int kFactsTag = std::numeric_limits<int>::min();

struct Said {  // by rank 0 to each other rank; then `text_bytes` of text: the tuning, or why there is none
  int64_t cores = 1;
  Link between = {};
  int64_t error = -1;  // a Code
  int64_t text_bytes = 0;
};
constexpr int64_t kSaidBytes = sizeof(Said);

// The text of the file, or "" where it does not count here.
std::string read_own_tuning(const std::string& file) {
  if (file.empty()) return "";
  const Tuning tuning = read_tuning(file);
  if (tuning.machine.empty() || tuning.machine == machine_name()) return to_text(tuning);
  log::warning("tuning file " + file + " was measured on \"" + tuning.machine + "\", but this is \"" + machine_name() +
               "\": it is left out; herd bench OP --tune measures again");
  return "";
}

}  // namespace

void share_facts(GroupState& world, const std::string& tuning_file, WorldFacts& facts) {
  const std::optional<Link> probed = probe_links(world);
  Said said;
  std::string text;
  if (world.rank() == 0) {
    if (probed) facts.between = rounded(*probed);
    said = {cores_of_host(world.engine().transport()), facts.between, -1, 0};
    try {
      text = read_own_tuning(tuning_file);
    } catch (const Error& error) {
      said.error = static_cast<int64_t>(error.code());
      text = error.message();
    }
    said.text_bytes = static_cast<int64_t>(text.size());
    for (Rank peer = 1; peer < world.size(); ++peer) {
      send_now(world, {&said, kSaidBytes, DType::kU8}, peer, kFactsTag, {.name = "facts"});
      if (!text.empty())
        send_now(world, {text.data(), said.text_bytes, DType::kU8}, peer, kFactsTag, {.name = "tuning"});
    }
  } else {
    receive_now(world, {&said, kSaidBytes, DType::kU8}, 0, kFactsTag, {.name = "facts"});
    text.resize(static_cast<size_t>(said.text_bytes));
    if (!text.empty()) receive_now(world, {text.data(), said.text_bytes, DType::kU8}, 0, kFactsTag, {.name = "tuning"});
  }
  if (said.error >= 0) throw Error(static_cast<Code>(said.error), text);
  facts.cores = static_cast<int>(said.cores);
  facts.between = said.between;
  if (!text.empty()) facts.tuning = parse_tuning(text);
}

}  // namespace herd::comm
