#include "herd/program/slots.h"

#include <algorithm>
#include <vector>

namespace herd::program {
namespace {

struct Interval {
  int begin = 0, end = 0;  // positions of the first access and of the release
};

// When a value holds something, in program order. One that is open at the end holds across the loop's end.
std::map<Value, std::vector<Interval>> lifetimes_of(const Program& step) {
  std::map<Value, std::vector<Interval>> out;
  std::map<Value, int> open;
  const int n = static_cast<int>(step.ops.size());
  for (int i = 0; i < n; ++i) {
    const Op& op = step.ops[static_cast<size_t>(i)];
    for (const Value& value : op.writes) {
      if (op.kind == OpKind::kRelease) {
        const auto begin = open.find(value);
        out[value].push_back({begin == open.end() ? 0 : begin->second, i});
        if (begin != open.end()) open.erase(begin);
      } else {
        open.try_emplace(value, i);
      }
    }
  }
  for (const auto& [value, begin] : open) out[value].push_back({begin, n});
  return out;
}

bool overlap(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  for (const Interval& x : a) {
    for (const Interval& y : b) {
      if (x.begin <= y.end && y.begin <= x.end) return true;
    }
  }
  return false;
}

}  // namespace

Program assign_slots(Program step, const SlotRules& rules) {
  const auto lifetimes = lifetimes_of(step);
  int next_slot = 0;
  std::vector<std::pair<Value, int>> gathered;  // and where each first comes to life
  for (auto& [value, info] : step.values) {
    info.slot = -1;
    if (info.persistent || info.tier != Tier::kDevice || !lifetimes.contains(value)) continue;
    if (value.kind == ValueKind::kGradient) info.slot = next_slot++;
    if (value.kind == ValueKind::kWeight) gathered.emplace_back(value, lifetimes.at(value).front().begin);
  }
  std::sort(gathered.begin(), gathered.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  struct Slot {
    std::vector<Interval> taken;
    int last_used = -1;
  };
  std::vector<Slot> pool;
  for (const auto& [value, begin] : gathered) {
    const auto& times = lifetimes.at(value);
    int best = -1;
    for (int s = 0; s < static_cast<int>(pool.size()); ++s) {
      const Slot& slot = pool[static_cast<size_t>(s)];
      if (!overlap(slot.taken, times) && (best < 0 || slot.last_used < pool[static_cast<size_t>(best)].last_used))
        best = s;
    }
    if (best < 0 || (static_cast<int>(pool.size()) < rules.gather_buffers)) {
      best = static_cast<int>(pool.size());
      pool.emplace_back();
    }
    Slot& slot = pool[static_cast<size_t>(best)];
    slot.taken.insert(slot.taken.end(), times.begin(), times.end());
    slot.last_used = begin;
    step.values[value].slot = next_slot + best;
  }
  return step;
}

}  // namespace herd::program
