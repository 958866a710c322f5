#include "herd/program/lifetimes.h"

#include <algorithm>
#include <set>

namespace herd::program {

Program add_releases(Program step) {
  std::erase_if(step.ops, [](const Op& op) { return op.kind == OpKind::kRelease; });
  enum class Next { kNothing, kRead, kWrite };
  std::map<Value, Next> next;  // access after the current op
  const auto persistent = [&](const Value& value) {
    const auto info = step.values.find(value);
    return info != step.values.end() && info->second.persistent;
  };
  std::vector<Op> reversed;
  for (auto op = step.ops.rbegin(); op != step.ops.rend(); ++op) {
    Op release{.kind = OpKind::kRelease, .lane = op->lane, .reads = {}, .writes = {}};
    const std::set<Value> reads(op->reads.begin(), op->reads.end());
    std::set<Value> touched = reads;
    touched.insert(op->writes.begin(), op->writes.end());
    for (const Value& value : touched) {
      const bool is_read_later = next[value] == Next::kRead;
      if (!is_read_later && !persistent(value)) release.writes.push_back(value);
      next[value] = reads.contains(value) ? Next::kRead : Next::kWrite;
    }
    if (!release.writes.empty()) reversed.push_back(std::move(release));
    reversed.push_back(*op);
  }
  step.ops.assign(std::make_move_iterator(reversed.rbegin()), std::make_move_iterator(reversed.rend()));
  return step;
}

}  // namespace herd::program
