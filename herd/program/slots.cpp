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

// Holds the time in which a value holds something.
struct Interval {
  int begin = 0, end = 0;               // positions of the first access and of the release
  int first_visit = 0, last_visit = 0;  // visits of blocks whose ops read or write the value
};

// Returns the intervals of each value in program order. An interval without a release ends with the step.
std::map<Value, std::vector<Interval>> lifetimes_of(const Program& step) {
  std::map<Value, std::vector<Interval>> out;
  std::map<Value, Interval> open;
  std::set<Value> visited;  // open values that a visit has read or written
  const int n = static_cast<int>(step.ops.size());
  int visit = 0;
  std::pair<int, int> at = {-1, -1};  // block and micro-batch
  for (int i = 0; i < n; ++i) {
    const Op& op = step.ops[static_cast<size_t>(i)];
    if (op.kind == OpKind::kRelease) {
      for (const Value& value : op.writes) {
        const auto begin = open.find(value);
        Interval interval = begin == open.end() ? Interval{0, i, 0, visit} : begin->second;
        interval.end = i;
        out[value].push_back(interval);
        if (begin != open.end()) open.erase(begin);
        visited.erase(value);
      }
      continue;
    }
    const bool is_visit = op.block >= 0 && op.kind != OpKind::kLoad;
    if (is_visit && at != std::pair(op.block, op.micro_batch)) ++visit, at = {op.block, op.micro_batch};
    for (const Value& value : op.writes) open.try_emplace(value, Interval{i, n, visit + 1, visit + 1});
    for (const auto* side : {&op.reads, &op.writes}) {
      for (const Value& value : *side) {
        const auto interval = open.find(value);
        if (interval == open.end() || !is_visit) continue;
        if (visited.insert(value).second) interval->second.first_visit = visit;
        interval->second.last_visit = visit;
      }
    }
  }
  for (const auto& [value, interval] : open) out[value].push_back(interval);
  return out;
}

// Gives slots to the values of a step.
class SlotAssignment {
 public:
  explicit SlotAssignment(Program& step) : step_(step), lifetimes_(lifetimes_of(step)) {
    for (const Op& op : step.ops) {
      if (op.kind == OpKind::kReceive) received_.insert(op.writes.begin(), op.writes.end());
      if (op.kind == OpKind::kFetch && op.lane == Lane::kIo) read_ahead_.insert(op.writes.begin(), op.writes.end());
    }
  }

  void run(const SlotRules& rules) {
    for (auto& [value, info] : step_.values) info.slot = -1;
    give_own_slots();
    const bool decodes = std::any_of(step_.values.begin(), step_.values.end(), [](const auto& entry) {
      return entry.first.kind == ValueKind::kWeight && entry.first.codec != Codec::kPlain;
    });
    for (const Codec codec : {Codec::kInt8, Codec::kPlain})
      give_pool_slots(ValueKind::kWeight, decodes && codec == Codec::kPlain ? 1 : rules.gather_buffers, codec);
    for (const Codec codec : {Codec::kPlain, Codec::kInt8, Codec::kInt4})
      give_pool_slots(ValueKind::kGradient, rules.gradient_buffers, codec);
    give_pool_slots(ValueKind::kActivation, rules.receive_buffers);
    give_pool_slots(ValueKind::kActivationGradient, rules.receive_buffers);
    for (const ValueKind kind : {ValueKind::kGradient, ValueKind::kWeight, ValueKind::kState, ValueKind::kActivation})
      give_staging_slots(kind, Tier::kHost);
    give_staging_slots(ValueKind::kActivation, Tier::kNvme);
    for (auto& [value, info] : step_.values) {
      const bool is_part = (value.placement.shard | value.placement.owned) != 0;
      if (is_part && (on_device(value) || info.persistent) && !is_pooled(value)) give_shard_slot(value, info);
    }
  }

 private:
  bool on_device(const Value& value) const {
    const auto info = step_.values.find(value);
    return info != step_.values.end() && value.tier == Tier::kDevice &&
           (info->second.persistent || lifetimes_.contains(value));
  }
  bool is_pooled(const Value& value) const {
    const ValueInfo& info = step_.values.at(value);
    return !info.persistent && (info.pooled || is_plain_whole(value, ValueKind::kWeight) || received_.contains(value));
  }

  // Gives whole gradients outside pools a slot each, and shards of weights that come and go.
  void give_own_slots() {
    for (auto& [value, info] : step_.values) {
      if (value.kind == ValueKind::kWeight && !value.placement.is_whole() && !info.persistent && !info.pooled &&
          on_device(value))
        info.slot = next_slot_++;
      const bool on_host = value.tier == Tier::kHost && !info.persistent && lifetimes_.contains(value);
      if (value.kind == ValueKind::kGradient && value.placement.is_whole() && (on_device(value) || on_host) &&
          !is_pooled(value))
        info.slot = next_slot_++;
    }
  }

  void give_pool_slots(ValueKind kind, int depth, Codec codec = Codec::kPlain) {
    const auto is_plain_shard = [&](const Value& value) {
      const bool is_plain = kind == ValueKind::kWeight || (kind == ValueKind::kGradient && codec == Codec::kPlain);
      return is_plain && !value.placement.is_whole();
    };
    for (const bool shards : {false, true})  // they do not share buffers with wholes
      give_pool_slots(kind, depth, codec, [&](const Value& value) { return is_plain_shard(value) == shards; });
  }

  template <class Belongs>
  void give_pool_slots(ValueKind kind, int depth, Codec codec, const Belongs& belongs) {
    std::vector<Value> items;
    std::vector<int64_t> bytes;
    std::vector<PoolUse> uses;
    for (const auto& [value, info] : step_.values) {
      if (value.kind != kind || value.codec != codec || !on_device(value) || info.persistent || !is_pooled(value) ||
          !belongs(value))
        continue;
      const int item = static_cast<int>(items.size());
      for (const Interval& interval : lifetimes_.at(value))
        uses.push_back({item, interval.first_visit, interval.last_visit, interval.begin, interval.end});
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

  // Tells whether a value only passes through a tier on its way to files. An activation without a file waits there.
  bool is_staged(const Value& value) const {
    if (value.kind != ValueKind::kActivation) return !read_ahead_.contains(value);
    return value.tier == Tier::kHost && step_.values.contains(in_tier(value, Tier::kNvme));
  }

  // Gives buffers on the host, or in files, to values that are copied to it or from it. Consecutive values have
  // different buffers where they are staged, so that one is copied while the other is worked on. The order of a program
  // itself reads files ahead.
  void give_staging_slots(ValueKind kind, Tier tier) {
    std::vector<Value> items;
    std::vector<int64_t> bytes;
    std::vector<PoolUse> uses;
    for (const auto& [value, info] : step_.values) {
      if (value.kind != kind || value.tier != tier || !info.pooled || !lifetimes_.contains(value)) continue;
      for (const Interval& interval : lifetimes_.at(value))
        uses.push_back({static_cast<int>(items.size()), 0, 0, interval.begin, interval.end});
      items.push_back(value);
      bytes.push_back(info.bytes);
    }
    std::stable_sort(uses.begin(), uses.end(),
                     [](const PoolUse& a, const PoolUse& b) { return a.first_op < b.first_op; });
    for (size_t i = uses.size(); i-- > 1;) {
      if (is_staged(items[static_cast<size_t>(uses[i].item)])) uses[i].first_op = uses[i - 1].first_op;
    }
    give_buffers(items, assign_pool(bytes, uses, 0));
  }

  // Puts the shard of a gradient into the slot of its whole where that has one, and a persistent shard of a weight into
  // that of a whole which persists in the same tier; what a rank owns likewise.
  void give_shard_slot(const Value& value, ValueInfo& info) {
    const auto whole = step_.values.find(placed(value, kWhole));
    if (value.kind == ValueKind::kGradient && !info.persistent) {
      const bool whole_has_slot = whole != step_.values.end() && on_device(whole->first) && !is_pooled(whole->first);
      info.slot = whole_has_slot ? whole->second.slot : next_slot_++;
    } else if (value.kind == ValueKind::kWeight && info.persistent) {
      if (whole != step_.values.end() && whole->second.persistent) info.slot = whole->second.slot = next_slot_++;
    }
  }

  Program& step_;
  const std::map<Value, std::vector<Interval>> lifetimes_;
  std::set<Value> received_;
  std::set<Value> read_ahead_;  // values on the host that are read from files
  int next_slot_ = 0;
};

}  // namespace

Program assign_slots(Program step, const SlotRules& rules) {
  SlotAssignment(step).run(rules);
  return step;
}

}  // namespace herd::program
