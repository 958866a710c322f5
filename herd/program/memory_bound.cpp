#include "herd/program/memory_bound.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "herd/base/units.h"
#include "herd/program/op_order.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

// Returns the bytes that are held throughout the step: persistent values, and each slot at the size of its largest
// value.
Peak held_throughout(const Program& step, Tier tier) {
  Peak base;
  struct Slot {
    int64_t bytes = 0;
    ValueKind kind = ValueKind::kWeight;
    bool pooled = false;
  };
  std::map<int, Slot> slots;
  for (const auto& [value, info] : step.values) {
    if (value.tier != tier) continue;
    if (info.slot >= 0) {
      Slot& slot = slots[info.slot];
      slot = {std::max(slot.bytes, info.bytes), value.kind, slot.pooled || info.pooled};
    } else if (info.persistent) {
      base.by_kind[value.kind] += info.bytes;
    }
  }
  for (const auto& [id, slot] : slots) (slot.pooled ? base.pool_bytes : base.by_kind[slot.kind]) += slot.bytes;
  base.bytes = base.pool_bytes;
  for (const auto& [kind, bytes] : base.by_kind) base.bytes += bytes;
  return base;
}

// Returns the info of a value with memory of its own on the tier; null if it is persistent or in a slot.
const ValueInfo* own_memory(const Program& step, const Value& value, Tier tier) {
  const auto info = step.values.find(value);
  if (info == step.values.end() || value.tier != tier || info->second.persistent || info->second.slot >= 0)
    return nullptr;
  return &info->second;
}

int64_t scratch_of(const Program& step, const Op& op, Tier tier) {
  const auto scratch = step.scratch.find({op.kind, op.block});
  return tier == Tier::kDevice && scratch != step.scratch.end() ? scratch->second : 0;
}

void keep_larger(Peak& best, const Peak& current, int64_t scratch, int op) {
  if (current.bytes + scratch <= best.bytes) return;
  best = current;
  best.bytes += scratch;
  best.op = op;
}

// Ops of the middle repetition have the same ops beside them as in any longer run.
constexpr int kRepetitions = 3;
constexpr size_t kNever = static_cast<size_t>(-1);

// Holds the ops between which a value holds something, by their numbers through all repetitions.
struct Lifetime {
  int64_t bytes = 0;
  size_t birth = 0, release = kNever;
};

// Holds the lifetimes of values with memory of their own, by birth.
struct Lifetimes {
  std::map<Value, std::vector<Lifetime>> by_value;
  std::vector<bool> begins_one;  // by op
};

Lifetimes collect_lifetimes(const Program& step, Tier tier) {
  const size_t n = step.ops.size();
  Lifetimes out{{}, std::vector<bool>(kRepetitions * n, false)};
  for (size_t i = 0; i < kRepetitions * n; ++i) {
    const Op& op = step.ops[i % n];
    for (const Value& value : op.writes) {
      const ValueInfo* info = own_memory(step, value, tier);
      if (info == nullptr) continue;
      std::vector<Lifetime>& lifetimes = out.by_value[value];
      const bool is_open = !lifetimes.empty() && lifetimes.back().release == kNever;
      if (op.kind == OpKind::kRelease) {
        if (is_open) lifetimes.back().release = i;
      } else if (!is_open) {
        lifetimes.push_back({info->bytes, i});
        out.begins_one[i] = true;
      }
    }
  }
  return out;
}

// Holds ops [begin, end) of a lane, by their index on the lane.
struct OpRange {
  int32_t begin = 0, end = 0;
};

// Returns the ops of a lane that may run during a lifetime. Earlier ops have ended when it begins, and later ops start
// when it is over.
OpRange ops_beside(const OpOrder& order, const Lifetime& lifetime, size_t lane) {
  const auto length = static_cast<int32_t>(order.ops_of(lane).size());
  return {order.num_ended_before(lifetime.birth, lane),
          lifetime.release == kNever ? length : order.first_started_after(lifetime.release, lane)};
}

// Returns the bytes that may be held while each op runs.
std::vector<int64_t> held_beside(const OpOrder& order, const Lifetimes& lifetimes) {
  std::vector<int64_t> out(lifetimes.begins_one.size());
  for (size_t lane = 0; lane < order.num_lanes(); ++lane) {
    const std::vector<size_t>& ops = order.ops_of(lane);
    std::vector<int64_t> change(ops.size() + 1);
    for (const auto& [value, all] : lifetimes.by_value) {
      int32_t counted = 0;  // first op that has not counted the value; an op counts it once
      for (const Lifetime& lifetime : all) {
        const OpRange range = ops_beside(order, lifetime, lane);
        const int32_t begin = std::max(range.begin, counted);
        if (begin >= range.end) continue;
        change[static_cast<size_t>(begin)] += lifetime.bytes;
        change[static_cast<size_t>(range.end)] -= lifetime.bytes;
        counted = range.end;
      }
    }
    int64_t held = 0;
    for (size_t index = 0; index < ops.size(); ++index) out[ops[index]] = held += change[index];
  }
  return out;
}

// Adds the values that held_beside() counts for an op.
void add_held(Peak& peak, const OpOrder& order, const Lifetimes& lifetimes, size_t op) {
  for (const auto& [value, all] : lifetimes.by_value) {
    const auto held = std::find_if(all.begin(), all.end(), [&](const Lifetime& lifetime) {
      return !order.ends_before(op, lifetime.birth) &&
             (lifetime.release == kNever || !order.ends_before(lifetime.release, op));
    });
    if (held == all.end()) continue;
    peak.bytes += held->bytes;
    peak.by_kind[value.kind] += held->bytes;
  }
}

// Finds the maximum of any range of numbers in O(1): a sparse table of the maxima of 2^k numbers from each index on.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::vector<int64_t> numbers) : maxima_({std::move(numbers)}) {
    for (size_t width = 1; 2 * width <= maxima_[0].size(); width *= 2) {
      std::vector<int64_t> wider(maxima_[0].size() - 2 * width + 1);
      for (size_t i = 0; i < wider.size(); ++i) wider[i] = std::max(maxima_.back()[i], maxima_.back()[i + width]);
      maxima_.push_back(std::move(wider));
    }
  }
  // Returns 0 for an empty range.
  int64_t operator()(OpRange range) const {
    if (range.begin >= range.end) return 0;
    const auto length = static_cast<size_t>(range.end - range.begin);
    const auto level = static_cast<size_t>(std::bit_width(length) - 1);
    return std::max(maxima_[level][static_cast<size_t>(range.begin)],
                    maxima_[level][static_cast<size_t>(range.end) - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<int64_t>> maxima_;
};

// Bounds the scratch of ops that may run beside an op. Each other lane runs one op at a time, so its largest scratch
// counts. Operations that a lane only starts have no scratch.
class ScratchBeside {
 public:
  ScratchBeside(const Program& step, const OpOrder& order, Tier tier) : order_(order) {
    for (size_t lane = 0; lane < order.num_lanes(); ++lane) {
      std::vector<int64_t> scratch;
      for (const size_t op : order.ops_of(lane))
        scratch.push_back(std::max<int64_t>(0, scratch_of(step, step.ops[op % step.ops.size()], tier)));
      if (std::any_of(scratch.begin(), scratch.end(), [](int64_t bytes) { return bytes > 0; }))
        lanes_.emplace_back(lane, RangeMaximum(std::move(scratch)));
    }
  }
  int64_t operator()(size_t op) const {
    int64_t sum = 0;
    for (const auto& [lane, largest] : lanes_) {
      if (lane != order_.lane(op))
        sum += largest({order_.num_ended_before(op, lane), order_.first_started_after(op, lane)});
    }
    return sum;
  }

 private:
  const OpOrder& order_;
  std::vector<std::pair<size_t, RangeMaximum>> lanes_;  // lanes whose ops take scratch
};

}  // namespace

std::string memory_table(const Peak& peak) {
  std::string out;
  int64_t scratch = peak.bytes;
  for (const auto& [kind, bytes] : peak.by_kind) {
    scratch -= bytes;
    if (bytes > 0) out += "  " + std::string(kind_name(kind)) + " " + format_bytes(static_cast<double>(bytes)) + "\n";
  }
  scratch -= peak.pool_bytes;
  if (peak.pool_bytes > 0) out += "  buffers of pools " + format_bytes(static_cast<double>(peak.pool_bytes)) + "\n";
  if (scratch > 0) out += "  scratch of the op " + format_bytes(static_cast<double>(scratch)) + "\n";
  return out;
}

Peak in_order_peak(const Program& step, Tier tier) {
  const Peak base = held_throughout(step, tier);
  Peak current = base, best = base;
  std::map<Value, bool> live;
  for (int round = 0; round < 2; ++round) {  // the second round starts with what the first left over
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const Op& op = step.ops[i];
      const bool release = op.kind == OpKind::kRelease;
      for (const Value& value : op.writes) {
        const ValueInfo* info = own_memory(step, value, tier);
        if (info == nullptr || live[value] != release) continue;
        live[value] = !release;
        current.bytes += release ? -info->bytes : info->bytes;
        current.by_kind[value.kind] += release ? -info->bytes : info->bytes;
      }
      keep_larger(best, current, scratch_of(step, op, tier), static_cast<int>(i));
    }
  }
  return best;
}

Peak peak_bound(const Program& step, Tier tier, std::span<const Program> others) {
  const size_t n = step.ops.size();
  const Lifetimes lifetimes = collect_lifetimes(step, tier);
  // Only the device has scratch.
  if (lifetimes.by_value.empty() && tier != Tier::kDevice) return held_throughout(step, tier);
  const OpOrder order(step, kRepetitions, others);
  const std::vector<int64_t> held = held_beside(order, lifetimes);
  const ScratchBeside scratch_beside(step, order, tier);
  const Peak base = held_throughout(step, tier);
  int64_t max_bytes = 0;  // bytes above the base
  size_t peak_op = kNever;
  for (size_t i = n; i < 2 * n; ++i) {
    const int64_t own_scratch = scratch_of(step, step.ops[i % n], tier);
    if (!lifetimes.begins_one[i] && own_scratch == 0) continue;
    const int64_t bytes = held[i] + own_scratch + scratch_beside(i);
    if (bytes > max_bytes) max_bytes = bytes, peak_op = i;
  }
  Peak best = base;
  if (peak_op == kNever) return best;
  add_held(best, order, lifetimes, peak_op);
  best.bytes = base.bytes + max_bytes;
  best.op = static_cast<int>(peak_op - n);
  return best;
}

}  // namespace herd::program
