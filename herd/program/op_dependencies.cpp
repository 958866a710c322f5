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

// Holds the accesses of one location that a later one may have to wait for, as positions in the unrolled steps.
struct Access {
  int last_write = -1;               // of all of it
  std::vector<int> reads;            // since then
  std::vector<int> writes_of_parts;  // since then, by ops on a part (Op::parts)
};

bool on_different_parts(const Op& a, const Op& b) { return a.parts == b.parts && a.part != b.part; }

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
    const auto wait_for_all = [&](const std::vector<int>& others) {
      for (const int other : others) {
        if (!on_different_parts(op, step.ops[static_cast<size_t>(other % n)])) wait_for(other);
      }
    };
    const auto wait_for_writes = [&](const Access& access) {
      if (access.last_write >= 0) wait_for(access.last_write);
      wait_for_all(access.writes_of_parts);
    };
    for (const Location& location : reads) wait_for_writes(accesses[location]);
    for (const Location& location : writes) {
      Access& access = accesses[location];
      wait_for_writes(access);
      wait_for_all(access.reads);
    }
    for (const Location& location : reads) accesses[location].reads.push_back(position);
    for (const Location& location : writes) {
      if (op.parts == 1)
        accesses[location] = {position, {}, {}};
      else
        accesses[location].writes_of_parts.push_back(position);
    }
    if (position < n) continue;
    for (const auto& [queue, earlier] : latest) waits.insert(earlier);
    for (const int earlier : waits)
      out[static_cast<size_t>(position - n)].push_back({earlier % n, earlier < n ? 1 : 0});
  }
  return out;
}

}  // namespace herd::program
