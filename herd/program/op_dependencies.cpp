#include "herd/program/op_dependencies.h"

#include <algorithm>
#include <map>
#include <set>

namespace herd::program {
namespace {

// Names the memory that accesses conflict about: a value, or a slot that several values share.
struct Location {
  int slot = -1;
  Value value;
  auto operator<=>(const Location&) const = default;
};

// Holds accesses as positions in the unrolled steps, by the part that the op works on (Op::parts, then Op::part). An op
// looks up those of its own part, so that a value in n parts costs O(n log n) time and not O(n^2).
class AccessesByPart {
 public:
  void add(const Op& op, int position) { positions_[op.parts][op.part].push_back(position); }

  // Calls `visit` for each access but those of ops that work on another of as many parts.
  template <typename Visit>
  void for_each_in_conflict(const Op& op, const Visit& visit) const {
    for (const auto& [parts, by_part] : positions_) {
      const bool same_cut = parts == op.parts;
      for (auto at = same_cut ? by_part.find(op.part) : by_part.begin(); at != by_part.end(); ++at) {
        for (const int position : at->second) visit(position);
        if (same_cut) break;
      }
    }
  }

 private:
  std::map<int, std::map<int, std::vector<int>>> positions_;
};

// Holds the accesses of one location that a later one may have to wait for.
struct Access {
  int last_write = -1;             // of all of it
  AccessesByPart reads;            // since then
  AccessesByPart writes_of_parts;  // since then, by ops on a part
};

Location location_of(const Program& step, const Value& value) {
  const auto info = step.values.find(value);
  if (info == step.values.end() || info->second.slot < 0) return {-1, value};
  return {info->second.slot, {}};
}

}  // namespace

Queue queue_of(const Op& op) {
  const bool message = op.kind == OpKind::kSend || op.kind == OpKind::kReceive;
  return message ? Queue{op.lane, op.axis, op.peer} : Queue{op.lane};
}

bool is_asynchronous(Lane lane) {
  return lane == Lane::kGather || lane == Lane::kReduce || lane == Lane::kActivations || lane == Lane::kPeerIn ||
         lane == Lane::kPeerOut;
}

bool is_deferred_release(const Op& op) { return op.kind == OpKind::kRelease && is_asynchronous(op.lane); }

std::vector<std::vector<Dependency>> dependencies(const Program& step) {
  const int n = static_cast<int>(step.ops.size());
  std::vector<std::vector<Dependency>> out(step.ops.size());
  std::map<Location, Access> accesses;
  for (int position = 0; position < 2 * n; ++position) {
    const Op& op = step.ops[static_cast<size_t>(position % n)];
    std::map<Queue, int> latest;  // latest op to wait for in each queue
    std::set<int> waits;          // all ops to wait for
    const auto wait_for = [&](int earlier) {
      const Op& other = step.ops[static_cast<size_t>(earlier % n)];
      if (is_deferred_release(other)) {
        waits.insert(earlier);
        return;
      }
      const auto [at, inserted] = latest.try_emplace(queue_of(other), earlier);
      if (!inserted) at->second = std::max(at->second, earlier);
    };
    std::set<Location> reads, writes;
    for (const Value& value : op.reads) reads.insert(location_of(step, value));
    for (const Value& value : op.writes) writes.insert(location_of(step, value));
    const auto wait_for_writes = [&](const Access& access) {
      if (access.last_write >= 0) wait_for(access.last_write);
      access.writes_of_parts.for_each_in_conflict(op, wait_for);
    };
    for (const Location& location : reads) wait_for_writes(accesses[location]);
    for (const Location& location : writes) {
      Access& access = accesses[location];
      wait_for_writes(access);
      access.reads.for_each_in_conflict(op, wait_for);
    }
    for (const Location& location : reads) accesses[location].reads.add(op, position);
    for (const Location& location : writes) {
      if (op.parts == 1)
        accesses[location] = {position, {}, {}};
      else
        accesses[location].writes_of_parts.add(op, position);
    }
    if (position < n) continue;
    for (const auto& [queue, earlier] : latest) waits.insert(earlier);
    for (const int earlier : waits)
      out[static_cast<size_t>(position - n)].push_back({earlier % n, earlier < n ? 1 : 0});
  }
  return out;
}

}  // namespace herd::program
