#include "herd/program/op_dependencies.h"

#include <algorithm>
#include <map>
#include <set>

namespace herd::program {
namespace {

// What a hazard is about: a value, or a slot that several values share.
struct Place {
  int slot = -1;
  Value value;
  auto operator<=>(const Place&) const = default;
};

struct Access {
  int last_write = -1;     // positions in the unrolled steps
  std::vector<int> reads;  // since then
};

Place place_of(const Program& step, const Value& value) {
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
  std::map<Place, Access> accesses;
  for (int position = 0; position < 2 * n; ++position) {
    const Op& op = step.ops[static_cast<size_t>(position % n)];
    std::map<Queue, int> latest;  // of each queue
    std::set<int> waits;          // what is listed
    const auto wait_for = [&](int before) {
      const Op& other = step.ops[static_cast<size_t>(before % n)];
      if (is_deferred_release(other)) {
        waits.insert(before);
        return;
      }
      const auto [at, fresh] = latest.try_emplace(queue_of(other), before);
      if (!fresh) at->second = std::max(at->second, before);
    };
    std::set<Place> reads, writes;
    for (const Value& value : op.reads) reads.insert(place_of(step, value));
    for (const Value& value : op.writes) writes.insert(place_of(step, value));
    for (const Place& place : reads) {
      if (accesses[place].last_write >= 0) wait_for(accesses[place].last_write);
    }
    for (const Place& place : writes) {
      Access& access = accesses[place];
      if (access.last_write >= 0) wait_for(access.last_write);
      for (const int reader : access.reads) wait_for(reader);
    }
    for (const Place& place : reads) accesses[place].reads.push_back(position);
    for (const Place& place : writes) accesses[place] = {position, {}};
    if (position < n) continue;
    for (const auto& [queue, before] : latest) waits.insert(before);
    for (const int before : waits) out[static_cast<size_t>(position - n)].push_back({before % n, before < n ? 1 : 0});
  }
  return out;
}

}  // namespace herd::program
