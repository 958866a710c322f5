#include "herd/program/memory_bound.h"

#include <algorithm>
#include <vector>

#include "herd/base/units.h"
#include "herd/program/op_dependencies.h"
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
    if (info.tier != tier) continue;
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
  if (info == step.values.end() || info->second.tier != tier || info->second.persistent || info->second.slot >= 0)
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

// Which ops surely come before each op of three unrolled steps, as rows of bits.
class Before {
 public:
  explicit Before(const Program& step) : n_(step.ops.size()), words_((3 * n_ + 63) / 64), bits_(3 * n_ * words_) {
    const auto waits = dependencies(step);
    std::map<Lane, size_t> last;
    for (size_t i = 0; i < 3 * n_; ++i) {
      const Op& op = step.ops[i % n_];
      if (const auto lane = last.find(op.lane); lane != last.end()) add(i, lane->second);
      last[op.lane] = i;
      for (const Dependency& d : waits[i % n_]) {
        const size_t back = static_cast<size_t>(d.distance) * n_;
        if (i - i % n_ >= back) add(i, i - i % n_ - back + static_cast<size_t>(d.op));
      }
    }
  }
  bool operator()(size_t earlier, size_t later) const {
    return bits_[later * words_ + earlier / 64] >> (earlier % 64) & 1;
  }

 private:
  void add(size_t later, size_t earlier) {
    for (size_t w = 0; w < words_; ++w) bits_[later * words_ + w] |= bits_[earlier * words_ + w];
    bits_[later * words_ + earlier / 64] |= uint64_t{1} << (earlier % 64);
  }
  size_t n_, words_;
  std::vector<uint64_t> bits_;
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

Peak peak_bound(const Program& step, Tier tier) {
  struct Life {
    Value value;
    int64_t bytes;
    size_t birth, release;
  };
  const size_t n = step.ops.size();
  std::vector<Life> lives;
  std::map<Value, size_t> open;
  std::vector<bool> takes(3 * n, false);  // memory, so that a peak may begin there
  for (size_t i = 0; i < 3 * n; ++i) {
    const Op& op = step.ops[i % n];
    for (const Value& value : op.writes) {
      const ValueInfo* info = own_memory(step, value, tier);
      if (info == nullptr) continue;
      if (op.kind != OpKind::kRelease) {
        takes[i] = open.try_emplace(value, i).second || takes[i];
      } else if (const auto birth = open.find(value); birth != open.end()) {
        lives.push_back({value, info->bytes, birth->second, i});
        open.erase(birth);
      }
    }
  }
  for (const auto& [value, birth] : open) lives.push_back({value, step.values.at(value).bytes, birth, 3 * n});
  const Before before(step);
  const Peak base = standing(step, tier);
  Peak best = base;
  for (size_t i = n; i < 2 * n; ++i) {
    if (!takes[i] && scratch_of(step, step.ops[i % n], tier) == 0) continue;
    Peak now = base;
    std::map<Value, bool> counted;  // one name holds one value at a time
    for (const Life& life : lives) {
      const bool released = life.release < 3 * n && before(life.release, i);
      if (released || before(i, life.birth) || counted[life.value]) continue;
      counted[life.value] = true;
      now.bytes += life.bytes;
      now.by_kind[life.value.kind] += life.bytes;
    }
    // Scratch of every op that may run at the same time: at most one per lane, so the largest of each.
    std::map<Lane, int64_t> scratch;
    for (size_t j = 0; j < 3 * n; ++j) {
      if (i == j || before(i, j) || before(j, i)) continue;
      const Op& op = step.ops[j % n];
      scratch[op.lane] = std::max(scratch[op.lane], scratch_of(step, op, tier));
    }
    scratch[step.ops[i % n].lane] = scratch_of(step, step.ops[i % n], tier);
    int64_t scratch_sum = 0;
    for (const auto& [lane, bytes] : scratch) scratch_sum += bytes;
    keep_larger(best, now, scratch_sum, static_cast<int>(i - n));
  }
  return best;
}

Peak budget_peak(const Program& step, Tier tier) {
  return step.ops.size() <= kMostBoundedOps ? peak_bound(step, tier) : in_order_peak(step, tier);
}

}  // namespace herd::program
