#include "herd/program/slots.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "herd/program/collective_message.h"
#include "herd/program/pool.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

struct Interval {
  int begin = 0, end = 0;               // positions of the first access and of the release
  int first_visit = 0, last_visit = 0;  // of blocks, by ops that read or write it
};

// When a value holds something, in program order. One that is open at the end holds across the loop's end.
std::map<Value, std::vector<Interval>> lifetimes_of(const Program& step) {
  std::map<Value, std::vector<Interval>> out;
  std::map<Value, Interval> open;
  std::set<Value> visited;  // of the open ones, those that a visit has touched
  const int n = static_cast<int>(step.ops.size());
  int visit = 0;
  std::pair<int, int> at = {-1, -1};  // block and micro-batch
  for (int i = 0; i < n; ++i) {
    const Op& op = step.ops[static_cast<size_t>(i)];
    if (op.kind == OpKind::kRelease) {
      for (const Value& value : op.writes) {
        const auto begin = open.find(value);
        Interval life = begin == open.end() ? Interval{0, i, 0, visit} : begin->second;
        life.end = i;
        out[value].push_back(life);
        if (begin != open.end()) open.erase(begin);
        visited.erase(value);
      }
      continue;
    }
    const bool passes = op.block >= 0 && op.kind != OpKind::kLoad;
    if (passes && at != std::pair(op.block, op.micro_batch)) ++visit, at = {op.block, op.micro_batch};
    for (const Value& value : op.writes) open.try_emplace(value, Interval{i, n, visit + 1, visit + 1});
    for (const auto* side : {&op.reads, &op.writes}) {
      for (const Value& value : *side) {
        const auto life = open.find(value);
        if (life == open.end() || !passes) continue;
        if (visited.insert(value).second) life->second.first_visit = visit;
        life->second.last_visit = visit;
      }
    }
  }
  for (const auto& [value, life] : open) out[value].push_back(life);
  return out;
}

class Assignment {
 public:
  explicit Assignment(Program& step) : step_(step), lifetimes_(lifetimes_of(step)) {
    for (const Op& op : step.ops) {
      if (op.kind == OpKind::kReceive) received_.insert(op.writes.begin(), op.writes.end());
    }
  }

  void run(const SlotRules& rules) {
    for (auto& [value, info] : step_.values) info.slot = -1;
    give_own();
    give_pool(ValueKind::kWeight, rules.gather_buffers);
    give_pool(ValueKind::kGradient, rules.gradient_buffers);
    give_pool(ValueKind::kActivation, rules.receive_buffers);
    give_pool(ValueKind::kActivationGradient, rules.receive_buffers);
    for (const ValueKind kind : {ValueKind::kGradient, ValueKind::kWeight}) give_staging(kind);
    for (auto& [value, info] : step_.values) {
      if (value.placement.shard != 0 && on_device(value)) place_shard(value, info);
    }
  }

 private:
  bool on_device(const Value& value) const {
    const auto info = step_.values.find(value);
    return info != step_.values.end() && value.tier == Tier::kDevice &&
           (info->second.persistent || lifetimes_.contains(value));
  }
  bool pooled(const Value& value) const {
    const ValueInfo& info = step_.values.at(value);
    return !info.persistent && (info.pooled || is_plain_whole(value, ValueKind::kWeight) || received_.contains(value));
  }

  void give_own() {
    for (auto& [value, info] : step_.values) {
      if (value.kind == ValueKind::kGradient && value.placement.is_whole() && on_device(value) && !pooled(value))
        info.slot = next_slot_++;
    }
  }

  void give_pool(ValueKind kind, int depth) {
    std::vector<Value> items;
    std::vector<int64_t> bytes;
    std::vector<PoolUse> uses;
    for (const auto& [value, info] : step_.values) {
      if (value.kind != kind || !on_device(value) || info.persistent || !pooled(value)) continue;
      const int item = static_cast<int>(items.size());
      for (const Interval& life : lifetimes_.at(value))
        uses.push_back({item, life.first_visit, life.last_visit, life.begin, life.end});
      items.push_back(value);
      bytes.push_back(info.bytes);
    }
    std::stable_sort(uses.begin(), uses.end(), [](const PoolUse& a, const PoolUse& b) {
      return std::tie(a.first_visit, a.first_op) < std::tie(b.first_visit, b.first_op);
    });
    give_buffers(items, assign_pool(bytes, uses, depth));
  }

  void give_buffers(const std::vector<Value>& items, const Pool& pool) {
    for (size_t i = 0; i < items.size(); ++i) step_.values[items[i]].slot = next_slot_ + pool.buffer_of[i];
    next_slot_ += static_cast<int>(pool.buffer_bytes.size());
  }

  // What is copied to the host, or from it, shares buffers there: neighbours have two, so that one is copied while the
  // other is worked on.
  void give_staging(ValueKind kind) {
    std::vector<Value> items;
    std::vector<int64_t> bytes;
    std::vector<PoolUse> uses;
    for (const auto& [value, info] : step_.values) {
      if (value.kind != kind || value.tier != Tier::kHost || !info.pooled || !lifetimes_.contains(value)) continue;
      for (const Interval& life : lifetimes_.at(value))
        uses.push_back({static_cast<int>(items.size()), 0, 0, life.begin, life.end});
      items.push_back(value);
      bytes.push_back(info.bytes);
    }
    std::stable_sort(uses.begin(), uses.end(),
                     [](const PoolUse& a, const PoolUse& b) { return a.first_op < b.first_op; });
    for (size_t i = uses.size(); i-- > 1;) uses[i].first_op = uses[i - 1].first_op;
    give_buffers(items, assign_pool(bytes, uses, 0));
  }

  void place_shard(const Value& value, ValueInfo& info) {
    const Value whole = placed(value, kWhole);
    const bool beside = on_device(whole) && !pooled(whole);
    if (value.kind == ValueKind::kGradient && !info.persistent) {
      info.slot = beside ? step_.values.at(whole).slot : next_slot_++;
    } else if (value.kind == ValueKind::kWeight && info.persistent && beside) {
      info.slot = step_.values.at(whole).slot = next_slot_++;
    }
  }

  Program& step_;
  const std::map<Value, std::vector<Interval>> lifetimes_;
  std::set<Value> received_;
  int next_slot_ = 0;
};

}  // namespace

Program assign_slots(Program step, const SlotRules& rules) {
  Assignment(step).run(rules);
  return step;
}

}  // namespace herd::program
