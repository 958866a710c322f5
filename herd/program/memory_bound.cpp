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

// What always counts: persistent values, and each slot at the size of its largest value.
Peak standing(const Program& step, Tier tier) {
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

void keep_larger(Peak& best, const Peak& now, int64_t scratch, int op) {
  if (now.bytes + scratch <= best.bytes) return;
  best = now;
  best.bytes += scratch;
  best.op = op;
}

constexpr int kRepetitions = 3;  // what holds beside an op of the middle one holds beside it in any longer run
constexpr size_t kNever = static_cast<size_t>(-1);

struct Life {
  int64_t bytes = 0;
  size_t birth = 0, release = kNever;
};

// Lives of values with memory of their own, by birth, and the ops that begin one.
struct Lives {
  std::map<Value, std::vector<Life>> of;
  std::vector<bool> takes;
};

Lives lives_of(const Program& step, Tier tier) {
  const size_t n = step.ops.size();
  Lives out{{}, std::vector<bool>(kRepetitions * n, false)};
  for (size_t i = 0; i < kRepetitions * n; ++i) {
    const Op& op = step.ops[i % n];
    for (const Value& value : op.writes) {
      const ValueInfo* info = own_memory(step, value, tier);
      if (info == nullptr) continue;
      std::vector<Life>& lives = out.of[value];
      const bool open = !lives.empty() && lives.back().release == kNever;
      if (op.kind == OpKind::kRelease) {
        if (open) lives.back().release = i;
      } else if (!open) {
        lives.push_back({info->bytes, i});
        out.takes[i] = true;
      }
    }
  }
  return out;
}

// Places [begin, end) of a lane: its ops that a life may last beside. Those before are over when it begins, those after
// start when it is over.
struct Range {
  int32_t begin = 0, end = 0;
};

Range beside(const OpOrder& order, const Life& life, size_t lane) {
  const auto length = static_cast<int32_t>(order.ops_of(lane).size());
  return {order.num_ended_before(life.birth, lane),
          life.release == kNever ? length : order.first_started_after(life.release, lane)};
}

// Bytes that may be alive beside each op.
std::vector<int64_t> held_beside(const OpOrder& order, const Lives& lives) {
  std::vector<int64_t> out(lives.takes.size());
  for (size_t lane = 0; lane < order.num_lanes(); ++lane) {
    const std::vector<size_t>& ops = order.ops_of(lane);
    std::vector<int64_t> change(ops.size() + 1);
    for (const auto& [value, all] : lives.of) {
      int32_t counted = 0;  // one name holds one value at a time
      for (const Life& life : all) {
        const Range range = beside(order, life, lane);
        const int32_t begin = std::max(range.begin, counted);
        if (begin >= range.end) continue;
        change[static_cast<size_t>(begin)] += life.bytes;
        change[static_cast<size_t>(range.end)] -= life.bytes;
        counted = range.end;
      }
    }
    int64_t now = 0;
    for (size_t place = 0; place < ops.size(); ++place) out[ops[place]] = now += change[place];
  }
  return out;
}

// The values that held_beside() counts for an op.
void add_held(Peak& peak, const OpOrder& order, const Lives& lives, size_t op) {
  for (const auto& [value, all] : lives.of) {
    const auto held = std::find_if(all.begin(), all.end(), [&](const Life& life) {
      return !order.ends_before(op, life.birth) && (life.release == kNever || !order.ends_before(life.release, op));
    });
    if (held == all.end()) continue;
    peak.bytes += held->bytes;
    peak.by_kind[value.kind] += held->bytes;
  }
}

// The largest of some of a row of numbers, in O(1): maxima of 2^k of them from each place on.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::vector<int64_t> numbers) : of_({std::move(numbers)}) {
    for (size_t width = 1; 2 * width <= of_[0].size(); width *= 2) {
      std::vector<int64_t> wider(of_[0].size() - 2 * width + 1);
      for (size_t i = 0; i < wider.size(); ++i) wider[i] = std::max(of_.back()[i], of_.back()[i + width]);
      of_.push_back(std::move(wider));
    }
  }
  int64_t operator()(Range range) const {  // 0 of an empty one
    if (range.begin >= range.end) return 0;
    const auto length = static_cast<size_t>(range.end - range.begin);
    const auto level = static_cast<size_t>(std::bit_width(length) - 1);
    return std::max(of_[level][static_cast<size_t>(range.begin)],
                    of_[level][static_cast<size_t>(range.end) - (size_t{1} << level)]);
  }

 private:
  std::vector<std::vector<int64_t>> of_;
};

// Scratch of ops that may run beside an op of another lane: at most one per lane, so the largest of each. Operations
// that a lane only starts have none.
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
  std::vector<std::pair<size_t, RangeMaximum>> lanes_;  // that take any
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
  const Peak base = standing(step, tier);
  Peak now = base, best = base;
  std::map<Value, bool> live;
  for (int round = 0; round < 2; ++round) {  // the second round starts with what the first left over
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const Op& op = step.ops[i];
      const bool release = op.kind == OpKind::kRelease;
      for (const Value& value : op.writes) {
        const ValueInfo* info = own_memory(step, value, tier);
        if (info == nullptr || live[value] != release) continue;
        live[value] = !release;
        now.bytes += release ? -info->bytes : info->bytes;
        now.by_kind[value.kind] += release ? -info->bytes : info->bytes;
      }
      keep_larger(best, now, scratch_of(step, op, tier), static_cast<int>(i));
    }
  }
  return best;
}

Peak peak_bound(const Program& step, Tier tier, std::span<const Program> others) {
  const size_t n = step.ops.size();
  const Lives lives = lives_of(step, tier);
  if (lives.of.empty() && tier != Tier::kDevice) return standing(step, tier);  // scratch is of the device
  const OpOrder order(step, kRepetitions, others);
  const std::vector<int64_t> held = held_beside(order, lives);
  const ScratchBeside scratch_beside(step, order, tier);
  const Peak base = standing(step, tier);
  int64_t most = 0;  // above the base
  size_t where = kNever;
  for (size_t i = n; i < 2 * n; ++i) {
    const int64_t own = scratch_of(step, step.ops[i % n], tier);
    if (!lives.takes[i] && own == 0) continue;
    const int64_t bytes = held[i] + own + scratch_beside(i);
    if (bytes > most) most = bytes, where = i;
  }
  Peak best = base;
  if (where == kNever) return best;
  add_held(best, order, lives, where);
  best.bytes = base.bytes + most;
  best.op = static_cast<int>(where - n);
  return best;
}

}  // namespace herd::program
