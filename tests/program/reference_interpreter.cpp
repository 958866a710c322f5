#include "tests/program/reference_interpreter.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "herd/program/collective_message.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/program_names.h"

namespace herd::program::testing {
namespace {

constexpr size_t kElements = 12;  // of a group; every number of shards in the tests divides it
using Numbers = std::vector<uint64_t>;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}
uint64_t mix_all(uint64_t seed, const Numbers& numbers) {
  for (const uint64_t n : numbers) seed = mix(seed, n);
  return seed;
}

struct Rank {
  const Program* step;
  std::vector<std::vector<Dependency>> waits;
  std::map<int, std::vector<int>> lanes;  // deferred releases are each on one of their own
  std::map<int, size_t> heads;
  std::vector<bool> done;
  std::map<std::pair<int, Value>, std::optional<Numbers>> memory;  // by slot, or by value
  std::map<Value, int> shard;                                      // of g.shard and the like: which part it is

  const Op& op(int position) const { return step->ops[static_cast<size_t>(position) % step->ops.size()]; }
  int lane(int position) const {
    constexpr int kLanes = 256;
    return is_deferred_release(op(position)) ? kLanes + position % static_cast<int>(step->ops.size())
                                             : static_cast<int>(op(position).lane);
  }
  std::set<Value> live;
  std::optional<Numbers>& at(const Value& value) {
    const int slot = step->values.at(value).slot;
    return memory[{slot, slot < 0 ? value : Value{}}];
  }
  // A shard in the slot of its whole is a part of the same numbers.
  bool inside(const Value& value) const {
    const auto info = step->values.find(placed(value, kWhole));
    const int slot = step->values.at(value).slot;
    return value.placement.shard != 0 && slot >= 0 && info != step->values.end() && info->second.slot == slot;
  }
  static Numbers part(const Numbers& whole, int index, int count) {
    const size_t size = whole.size() / static_cast<size_t>(count);
    return {whole.begin() + static_cast<long>(size) * index, whole.begin() + static_cast<long>(size) * (index + 1)};
  }
  std::optional<Numbers> get(const Value& value, int axis) {
    if (!live.contains(value)) return std::nullopt;
    const auto& cell = at(value);
    if (!inside(value) || !cell || cell->size() < kElements) return cell;
    return part(*cell, coordinate(axis), step->mesh.size(axis));
  }
  void set(const Value& value, Numbers numbers, int axis) {
    live.insert(value);
    auto& cell = at(value);
    if (!inside(value)) {
      cell = std::move(numbers);
      return;
    }
    if (!cell || cell->size() < kElements) cell = Numbers(kElements);
    const size_t begin =
        static_cast<size_t>(coordinate(axis)) * (kElements / static_cast<size_t>(step->mesh.size(axis)));
    for (size_t i = 0; i < numbers.size() && begin + i < kElements; ++i) (*cell)[begin + i] = numbers[i];
  }
  int coordinate(int axis) const { return step->mesh.index(axis, step->rank); }
};

class Interpreter {
 public:
  Interpreter(const std::vector<Program>& programs, int shard_axis, int steps, uint64_t seed)
      : shard_axis_(shard_axis), random_(seed), shuffle_(seed != 0) {
    for (const Program& program : programs) {
      Rank rank{.step = &program,
                .waits = dependencies(program),
                .lanes = {},
                .heads = {},
                .done = {},
                .memory = {},
                .shard = {},
                .live = {}};
      const int total = steps * static_cast<int>(program.ops.size());
      rank.done.assign(static_cast<size_t>(total), false);
      for (int p = 0; p < total; ++p) rank.lanes[rank.lane(p)].push_back(p);
      for (const auto& [lane, positions] : rank.lanes) rank.heads[lane] = 0;
      for (const auto& [value, info] : program.values) {
        if (!info.persistent || (value.kind != ValueKind::kWeight && value.kind != ValueKind::kState)) continue;
        Numbers whole(kElements);
        for (size_t i = 0; i < kElements; ++i)
          whole[i] = mix(static_cast<uint64_t>(value.kind) * 100 + static_cast<uint64_t>(value.index), i);
        const bool sharded = shard_axis != kNoAxis && !value.placement.is_whole();
        rank.set(value, sharded ? Rank::part(whole, rank.coordinate(shard_axis), program.mesh.size(shard_axis)) : whole,
                 shard_axis);
      }
      ranks_.push_back(std::move(rank));
    }
  }

  Result run() {
    while (failure_.empty()) {
      std::vector<std::pair<int, int>> heads;
      for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
        for (const auto& [lane, positions] : ranks_[static_cast<size_t>(r)].lanes) heads.emplace_back(r, lane);
      }
      if (shuffle_) std::shuffle(heads.begin(), heads.end(), random_);
      const bool progress =
          std::any_of(heads.begin(), heads.end(), [&](const auto& head) { return try_run(head.first, head.second); });
      if (!progress) break;
    }
    Result result{failure_, {}};
    for (Rank& rank : ranks_) {
      for (const auto& [lane, positions] : rank.lanes) {
        if (rank.heads[lane] < positions.size() && result.failure.empty()) result.failure = "hangs";
      }
      result.persistent.emplace_back();
      for (const auto& [value, info] : rank.step->values) {
        if (info.persistent && value.kind != ValueKind::kLoss)
          result.persistent.back()[value] = rank.get(value, shard_axis_).value_or(Numbers{});
      }
    }
    for (const auto& [ends, box] : messages_) {
      if (!box.empty() && result.failure.empty()) result.failure = "messages are left";
    }
    if (!result.failure.empty()) result.persistent.clear();
    return result;
  }

 private:
  Numbers get(Rank& rank, const Value& value) {
    const auto held = rank.get(value, shard_axis_);
    if (!held) failure_ = "reads nothing";
    return held.value_or(Numbers(1));
  }

  bool try_run(int r, int lane) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const auto& positions = rank.lanes[lane];
    if (rank.heads[lane] >= positions.size()) return false;
    const int position = positions[rank.heads[lane]], n = static_cast<int>(rank.step->ops.size());
    for (const Dependency& d : rank.waits[static_cast<size_t>(position % n)]) {
      const int before = position - position % n - d.distance * n + d.op;
      if (before >= 0 && !rank.done[static_cast<size_t>(before)]) return false;
    }
    const Op& op = rank.op(position);
    if (is_collective(op)) return meet(r, position);
    if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive) {
      const int peer = rank.step->mesh.peer(op.axis, r, op.peer);
      if (op.kind == OpKind::kSend) {
        for (const Value& value : op.reads) messages_[{r, peer}].push_back(get(rank, value));
      } else {
        auto& box = messages_[{peer, r}];
        if (box.empty()) return false;
        for (const Value& value : op.writes) rank.set(value, box.front(), shard_axis_);
        box.erase(box.begin());
      }
    } else {
      run_local(rank, op, position / n);
    }
    finish(rank, position);
    return true;
  }

  void finish(Rank& rank, int position) {
    rank.done[static_cast<size_t>(position)] = true;
    ++rank.heads[rank.lane(position)];
  }

  bool meet(int r, int position) {
    Rank& me = ranks_[static_cast<size_t>(r)];
    const Op& op = me.op(position);
    const std::vector<int> members = me.step->mesh.ranks(op.axis, r);
    auto& posted = posted_[{op.axis, members.front(), op.lane}];
    if (!posted.try_emplace(r, position).second) return false;
    if (posted.size() < members.size()) return true;
    const auto all = posted;
    posted.clear();
    const bool adds = op.kind == OpKind::kReduceScatter && op.reads.size() == 2 * op.writes.size();
    std::vector<std::vector<Numbers>> in(op.reads.size());
    for (const int q : members) {
      Rank& rank = ranks_[static_cast<size_t>(q)];
      const Op& other = rank.op(all.at(q));
      if (other.kind != op.kind || other.reads != op.reads || other.writes != op.writes ||
          (op.reads.size() != op.writes.size() && !adds)) {
        failure_ = "collectives differ";
        return true;
      }
      for (size_t i = 0; i < op.reads.size(); ++i) in[i].push_back(get(rank, op.reads[i]));
    }
    for (size_t i = 0; i < op.writes.size(); ++i) {
      Numbers sum = in[i][0];
      for (size_t q = 1; q < in[i].size(); ++q) {
        if (op.kind == OpKind::kAllGather) {
          sum.insert(sum.end(), in[i][q].begin(), in[i][q].end());
        } else {
          for (size_t k = 0; k < std::min(sum.size(), in[i][q].size()); ++k) sum[k] += in[i][q][k];
        }
      }
      const bool scatter = op.kind == OpKind::kReduceScatter;
      for (size_t q = 0; q < members.size(); ++q) {
        Numbers result = scatter ? Rank::part(sum, static_cast<int>(q), static_cast<int>(members.size())) : sum;
        for (size_t k = 0; adds && k < result.size(); ++k) {
          const Numbers& so_far = in[op.writes.size() + i][q];
          result[k] += k < so_far.size() ? so_far[k] : 0;
        }
        ranks_[static_cast<size_t>(members[q])].set(op.writes[i], std::move(result), shard_axis_);
      }
    }
    for (const int q : members) finish(ranks_[static_cast<size_t>(q)], all.at(q));
    return true;
  }

  void run_local(Rank& rank, const Op& op, int iteration) {
    std::map<ValueKind, std::vector<Numbers>> in;
    std::map<Value, Numbers> by_value;
    uint64_t inputs = 0;  // of everything but gradients; the order of weights does not matter
    for (const Value& value : op.reads) {
      by_value[value] = get(rank, value);
      if (value.kind != ValueKind::kGradient) inputs += mix_all(static_cast<uint64_t>(value.kind), by_value[value]);
    }
    const auto kind = [&](ValueKind k) {
      for (const auto& [value, numbers] : by_value) {
        if (value.kind == k) return numbers;
      }
      return Numbers{};
    };
    const uint64_t block = static_cast<uint64_t>(op.block + 7),
                   place = block * 1000 + static_cast<uint64_t>(op.micro_batch);
    for (const Value& value : op.writes) {
      if (op.kind == OpKind::kRelease) {
        rank.live.erase(value);
        continue;
      }
      Numbers out;
      switch (op.kind) {
        case OpKind::kLoad:
          out = Numbers{mix(static_cast<uint64_t>(rank.coordinate(rank.step->mesh.find("dp"))) * 100 +
                                static_cast<uint64_t>(op.micro_batch),
                            static_cast<uint64_t>(iteration))};
          break;
        case OpKind::kNorm: {
          uint64_t sum = 0;
          for (const auto& [from, numbers] : by_value) {
            if (op.writes.size() > 1 && from.index != value.index) continue;
            for (const uint64_t g : numbers) sum += g * g;
          }
          out = Numbers{sum};
          break;
        }
        case OpKind::kClip: {
          uint64_t sum = 0;
          for (const auto& [from, numbers] : by_value) sum += numbers[0];
          out = Numbers{mix(1, sum)};
          break;
        }
        case OpKind::kStep: {
          const Numbers g = kind(ValueKind::kGradient), w = kind(ValueKind::kWeight), s = kind(ValueKind::kState),
                        f = kind(ValueKind::kFactor);
          Numbers result(g.size());
          for (size_t i = 0; i < g.size(); ++i) {
            const uint64_t old_s = i < s.size() ? s[i] : 1, old_w = i < w.size() ? w[i] : 1;
            result[i] =
                value.kind == ValueKind::kState ? old_s * 5 + g[i] : old_w * 3 + (f.empty() ? 1 : f[0]) * g[i] + old_s;
          }
          out = result;
          break;
        }
        case OpKind::kFetch:
        case OpKind::kEvict:
        case OpKind::kEncode:
        case OpKind::kDecode:
          for (const auto& [from, numbers] : by_value) {
            if (from.kind == value.kind || by_value.size() == 1) out = numbers;
          }
          break;
        default:
          if (value.kind == ValueKind::kGradient) {
            const auto so_far = by_value.find(value);
            Numbers g = so_far == by_value.end() ? Numbers(kElements) : so_far->second;
            g.resize(kElements);
            for (size_t i = 0; i < kElements; ++i)
              g[i] += mix(mix(inputs, block), static_cast<uint64_t>(value.index) * 64 + i);
            out = g;
          } else {
            const bool graph = value.kind == ValueKind::kGraph;  // recompute gives what forward gave
            out = Numbers{mix(mix(inputs, graph ? block * 31 : place), static_cast<uint64_t>(value.kind))};
          }
      }
      rank.set(value, std::move(out), shard_axis_);
    }
  }

  const int shard_axis_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, Lane>, std::map<int, int>> posted_;
  std::map<std::pair<int, int>, std::vector<Numbers>> messages_;
  std::mt19937_64 random_;
  const bool shuffle_;
  std::string failure_;
};

}  // namespace

Result interpret(const std::vector<Program>& programs, int shard_axis, int steps, uint64_t seed) {
  return Interpreter(programs, shard_axis, steps, seed).run();
}

}  // namespace herd::program::testing
