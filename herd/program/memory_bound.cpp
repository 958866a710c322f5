#include "herd/program/memory_bound.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>
#include <vector>

#include "herd/base/units.h"
#include "herd/program/op_order.h"
#include "herd/program/program_names.h"
#include "herd/program/value_memory.h"

namespace herd::program {
namespace {

// Returns the bytes that are held throughout the step: persistent values, and each slot at the size of its largest
// value, other than `without`.
Peak held_throughout(const Program& step, Tier tier, const std::set<int>& without = {}) {
  Peak base;
  struct Slot {
    int64_t bytes = 0;
    ValueKind kind = ValueKind::kWeight;
    bool pooled = false;
  };
  std::map<int, Slot> slots;
  for (const auto& [value, info] : step.values) {
    if (value.tier != tier) continue;
    if (without.contains(info.slot)) continue;
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

// Tells whether a value has memory of its own on the tier: it is neither persistent nor in a slot, unless that is one
// of `received`.
bool has_own_memory(const Program& step, const Value& value, Tier tier, const std::set<int>& received) {
  const auto info = step.values.find(value);
  if (info == step.values.end() || value.tier != tier || info->second.persistent) return false;
  return info->second.slot < 0 || received.contains(info->second.slot);
}

int64_t scratch_of(const Program& step, const Op& op, Tier tier) {
  const auto scratch = step.scratch.find(scratch_key(op));
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

// Holds the lifetimes of one buffer, by birth: the memory of one value, or of a partial sum and the whole made of it in
// place. Values received in one slot, of which one exists at a time, are listed together.
struct Buffer {
  ValueKind kind = ValueKind::kWeight;
  bool is_received = false;
  std::vector<Lifetime> lifetimes = {};
};

struct Buffers {
  std::vector<Buffer> all;
  std::vector<bool> begin_at;  // by op: whether memory other than a receive's is taken there
};

// Tells whether an op leaves nothing of a value that it reads. A backward frees the graph while it runs.
bool consumes(const Op& op, const Value& value) {
  return (op.kind == OpKind::kBackward && value.kind == ValueKind::kGraph) ||
         (op.kind == OpKind::kBackwardWeight && value.kind == ValueKind::kPending);
}

Buffers collect_buffers(const Program& step, Tier tier, const std::set<int>& received_slots) {
  const size_t n = step.ops.size();
  ValueMemory memory(step);
  std::map<std::pair<int, Value>, Buffer> buffers;  // by slot, or by value
  std::map<Value, size_t> consumed_at, released_at;
  std::map<Value, std::pair<Buffer*, size_t>> live;  // by owner: its buffer, and the number of its lifetime there
  std::vector<bool> begin_at(kRepetitions * n, false);
  for (size_t i = 0; i < kRepetitions * n; ++i) {
    const Op& op = step.ops[i % n];
    for (const Value& value : op.reads) {
      if (consumes(op, value)) consumed_at[value] = i;
    }
    for (const Value& value : op.writes) {
      const auto info = step.values.find(value);
      if (info == step.values.end() || value.tier != tier || info->second.persistent) continue;
      const int slot = info->second.slot;
      if (slot >= 0 && !received_slots.contains(slot)) continue;
      if (op.kind == OpKind::kRelease) {
        const size_t end = consumed_at.contains(value) ? consumed_at[value] : i;
        released_at[memory.owner(value)] = end;
        for (const auto& [owner, bytes] : memory.give_back(value)) {
          const auto [buffer, number] = live.at(owner);
          // A graph may hold what the activation has left, or the other way round.
          buffer->lifetimes[number].release = std::max(end, released_at[owner]);
        }
        continue;
      }
      for (const auto& [owner, bytes] : memory.take(value)) {
        Buffer& buffer = buffers[slot >= 0 ? std::pair(slot, Value{}) : std::pair(-1, owner)];
        buffer.kind = value.kind;
        buffer.is_received = slot >= 0;
        live[owner] = {&buffer, buffer.lifetimes.size()};
        buffer.lifetimes.push_back({bytes, i});
        begin_at[i] = begin_at[i] || slot < 0;
      }
    }
  }
  Buffers out{{}, std::move(begin_at)};
  for (auto& [key, buffer] : buffers) {
    if (buffer.is_received) {  // an op counts a slot once, so at the size of its largest value
      int64_t largest = 0;
      for (const Lifetime& lifetime : buffer.lifetimes) largest = std::max(largest, lifetime.bytes);
      for (Lifetime& lifetime : buffer.lifetimes) lifetime.bytes = largest;
    }
    out.all.push_back(std::move(buffer));
  }
  return out;
}

// Holds ops [begin, end) of a lane, by their index on the lane.
struct OpRange {
  int32_t begin = 0, end = 0;
};

// Tells at which ops of a lane something may be held.
class OpsBeside {
 public:
  // `is_evaluated` says at which ops memory is counted.
  OpsBeside(const OpOrder& order, const std::vector<bool>& is_evaluated) : order_(order) {
    for (size_t lane = 0; lane < order.num_lanes(); ++lane) {
      std::vector<int32_t> last = {0};
      int32_t index = 0;
      for (const size_t op : order.ops_of(lane)) {
        last.push_back(is_evaluated[op] ? index : last.back());
        ++index;
      }
      last_evaluated_.push_back(std::move(last));
    }
  }

  // Returns the ops of a lane that may run during a lifetime. Earlier ops have ended when it begins, and later ops
  // start when it is over. Memory is not counted where a receive starts, but at the op that started last before it: one
  // that may run beside it, or the last one before that.
  OpRange operator()(const Buffer& buffer, const Lifetime& lifetime, size_t lane) const {
    const auto length = static_cast<int32_t>(order_.ops_of(lane).size());
    const int32_t begin = order_.num_ended_before(lifetime.birth, lane);
    return {buffer.is_received ? last_evaluated_[lane][static_cast<size_t>(begin)] : begin,
            lifetime.release == kNever ? length : order_.first_started_after(lifetime.release, lane)};
  }

 private:
  const OpOrder& order_;
  std::vector<std::vector<int32_t>> last_evaluated_;  // by lane and index: last op before it at which memory is counted
};

// Holds bytes that count at ops [begin, end) of a lane.
struct CountedRange {
  OpRange ops;
  int64_t bytes = 0;
};

// Returns where a buffer counts on a lane. Lifetimes may share ops; an op counts the buffer once, unless the second may
// begin before the first is over.
std::vector<CountedRange> counted_ranges(const OpOrder& order, const OpsBeside& ops_beside, const Buffer& buffer,
                                         size_t lane) {
  std::vector<CountedRange> out;
  int32_t counted = 0;  // first op that has not counted the buffer
  for (size_t i = 0; i < buffer.lifetimes.size(); ++i) {
    const Lifetime& lifetime = buffer.lifetimes[i];
    OpRange ops = ops_beside(buffer, lifetime, lane);
    if (i > 0 && order.ends_before(buffer.lifetimes[i - 1].release, lifetime.birth))
      ops.begin = std::max(ops.begin, counted);
    if (ops.begin >= ops.end) continue;
    out.push_back({ops, lifetime.bytes});
    counted = ops.end;
  }
  return out;
}

// Returns the bytes that may be held while each op runs.
std::vector<int64_t> held_beside(const OpOrder& order, const OpsBeside& ops_beside, const Buffers& buffers) {
  std::vector<int64_t> out(buffers.begin_at.size());
  for (size_t lane = 0; lane < order.num_lanes(); ++lane) {
    const std::vector<size_t>& ops = order.ops_of(lane);
    std::vector<int64_t> change(ops.size() + 1);
    for (const Buffer& buffer : buffers.all) {
      for (const CountedRange& range : counted_ranges(order, ops_beside, buffer, lane)) {
        change[static_cast<size_t>(range.ops.begin)] += range.bytes;
        change[static_cast<size_t>(range.ops.end)] -= range.bytes;
      }
    }
    int64_t held = 0;
    for (size_t index = 0; index < ops.size(); ++index) out[ops[index]] = held += change[index];
  }
  return out;
}

// Adds what held_beside() counts for an op.
void add_held(Peak& peak, const OpOrder& order, const OpsBeside& ops_beside, const Buffers& buffers, size_t op) {
  const int32_t index = order.index_on_lane(op);
  for (const Buffer& buffer : buffers.all) {
    for (const CountedRange& range : counted_ranges(order, ops_beside, buffer, order.lane(op))) {
      if (index >= range.ops.begin && index < range.ops.end) peak.by_kind[buffer.kind] += range.bytes;
    }
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

std::set<int> slots_of_received(const Program& step) {
  std::set<int> received, other;
  for (const Op& op : step.ops) {
    if (op.kind == OpKind::kRelease) continue;
    for (const Value& value : op.writes) {
      const auto info = step.values.find(value);
      if (info == step.values.end() || info->second.slot < 0) continue;
      const bool delays =
          op.kind == OpKind::kReceive || (value.kind == ValueKind::kActivation && value.tier == Tier::kDevice);
      (delays ? received : other).insert(info->second.slot);
    }
  }
  for (const int slot : other) received.erase(slot);
  return received;
}

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
  const std::set<int> received = slots_of_received(step);
  const Peak base = held_throughout(step, tier, received);
  ValueMemory memory(step);
  Peak current = base, best = base;
  for (int round = 0; round < 2; ++round) {  // the second round starts with what the first left over
    for (size_t i = 0; i < step.ops.size(); ++i) {
      const Op& op = step.ops[i];
      const bool release = op.kind == OpKind::kRelease;
      for (const Value& value : op.writes) {
        if (!has_own_memory(step, value, tier, received)) continue;
        for (const auto& [owner, bytes] : release ? memory.give_back(value) : memory.take(value)) {
          current.bytes += release ? -bytes : bytes;
          current.by_kind[owner.kind] += release ? -bytes : bytes;
        }
      }
      keep_larger(best, current, scratch_of(step, op, tier), static_cast<int>(i));
    }
  }
  return best;
}

Peak peak_bound(const Program& step, Tier tier, std::span<const Program> others) {
  const size_t n = step.ops.size();
  const std::set<int> received_slots = slots_of_received(step);
  const Buffers buffers = collect_buffers(step, tier, received_slots);
  const Peak base = held_throughout(step, tier, received_slots);
  // Only the device has scratch.
  if (buffers.all.empty() && tier != Tier::kDevice) return base;
  const OpOrder order(step, kRepetitions, others);
  const auto own_scratch = [&](size_t op) { return scratch_of(step, step.ops[op % n], tier); };
  std::vector<bool> is_evaluated = buffers.begin_at;
  for (size_t i = 0; i < is_evaluated.size(); ++i)
    is_evaluated[i] = is_evaluated[i] || own_scratch(i) != 0 || step.ops[i % n].lane == Lane::kCompute;
  const OpsBeside ops_beside(order, is_evaluated);
  const std::vector<int64_t> held = held_beside(order, ops_beside, buffers);
  const ScratchBeside scratch_beside(step, order, tier);
  int64_t max_bytes = 0;  // bytes above the base
  size_t peak_op = kNever;
  for (size_t i = n; i < 2 * n; ++i) {
    if (!is_evaluated[i]) continue;
    const int64_t bytes = held[i] + own_scratch(i) + scratch_beside(i);
    if (bytes > max_bytes) max_bytes = bytes, peak_op = i;
  }
  Peak best = base;
  if (peak_op == kNever) return best;
  add_held(best, order, ops_beside, buffers, peak_op);
  best.bytes = base.bytes + max_bytes;
  best.op = static_cast<int>(peak_op - n);
  return best;
}

}  // namespace herd::program
