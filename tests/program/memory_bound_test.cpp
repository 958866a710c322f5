// The bound of a step's peak, against all schedules of small programs and against its definition.
#include "herd/program/memory_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>
#include <set>

#include "herd/program/lifetimes.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/program_names.h"
#include "herd/program/slots.h"
#include "tests/program/combinations.h"

namespace herd::program::testing {
namespace {

Op written(OpKind kind, Lane lane, std::vector<Value> reads, std::vector<Value> writes) {
  return {.kind = kind, .lane = lane, .reads = std::move(reads), .writes = std::move(writes)};
}

// Runs a few steps of some ranks in orders that lanes, hazards and messages allow, and says how much the first ever
// holds. An op takes its memory as it starts; a release gives it back as it ends. A receive may end when its send has
// started, and the send has ended when its receive has and all before it on its lane.
// Operations that a lane only starts are under way together, and end in order; a release among them has ended when all
// that it waits for has.
class Schedules {
 public:
  explicit Schedules(const std::vector<Program>& steps, int num_steps = 3) : steps_(steps), places_(steps.size()) {
    for (size_t r = 0; r < steps.size(); ++r) {
      waits_.push_back(dependencies(steps[r]));
      std::map<Queue, std::vector<int>> lanes;
      for (int i = 0; i < num_steps * size(r); ++i) {
        if (!is_deferred_release(at(r, i))) lanes[queue_of(at(r, i))].push_back(i);
      }
      places_[r].resize(static_cast<size_t>(num_steps * size(r)));
      compute_.emplace_back(0, 0);
      for (const auto& [lane, ops] : lanes) {
        for (size_t k = 0; k < ops.size(); ++k)
          places_[r][static_cast<size_t>(ops[k])] = {lanes_.size(), static_cast<int>(k)};
        if (lane.lane == Lane::kCompute) compute_[r] = {lanes_.size(), static_cast<int>(ops.size()) / num_steps};
        lanes_.push_back({r, ops, is_asynchronous(lane.lane)});
      }
    }
    Program idle = steps[0];
    for (const Op& op : steps[0].ops) {
      if (op.kind == OpKind::kReceive) received_.insert(op.writes[0]), idle.values.erase(op.writes[0]);
      if (op.kind == OpKind::kAllReduce && is_partial(op)) partial_of_[op.writes[0]] = op.reads[0];
    }
    idle.ops.clear();
    standing_ = in_order_peak(idle, Tier::kDevice).bytes;
  }

  int64_t most_of_all() const {
    std::vector<State> open = {State(2 * lanes_.size())};
    std::set<State> seen = {open[0]};
    int64_t most = 0;
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      most = std::max(most, held(state));
      for (size_t event = 0; event < state.size(); ++event) {
        if (!may_happen(state, event)) continue;
        State next = state;
        ++next[event];
        if (seen.insert(next).second) open.push_back(std::move(next));
      }
    }
    return standing_ + most;
  }

  // One of them: now and then another lane gets to go first, another second, and so on.
  int64_t most_of_one(uint32_t seed) const {
    std::mt19937 random(seed);
    State state(2 * lanes_.size());
    std::vector<size_t> first(state.size());
    std::iota(first.begin(), first.end(), 0);
    int64_t most = 0;
    for (bool moved = true; moved;) {
      if (random() % 32 == 0) std::shuffle(first.begin(), first.end(), random);
      const auto event =
          std::find_if(first.begin(), first.end(), [&](size_t candidate) { return may_happen(state, candidate); });
      moved = event != first.end();
      if (!moved) break;
      ++state[*event];
      if (lanes_[*event / 2].rank == 0) most = std::max(most, held(state));
    }
    for (size_t event = 0; event < state.size(); ++event)
      EXPECT_EQ(state[event], static_cast<int>(lanes_[event / 2].ops.size())) << "a lane is stuck";
    return standing_ + most;
  }

 private:
  // Tells whether an all-reduce of an activation makes a whole of a partial sum.
  static bool is_partial(const Op& op) {
    return op.reads.size() == 1 && op.writes.size() == 1 && op.reads[0].kind == op.writes[0].kind &&
           op.reads[0].index == op.writes[0].index && op.reads[0].placement != op.writes[0].placement;
  }

  using State = std::vector<int>;  // by lane: how many of its ops have started, then how many have ended
  struct LaneOfRank {
    size_t rank;
    std::vector<int> ops;
    bool asynchronous;
  };

  int size(size_t rank) const { return static_cast<int>(steps_[rank].ops.size()); }
  const Op& at(size_t rank, int position) const { return steps_[rank].ops[static_cast<size_t>(position % size(rank))]; }
  bool ended(const State& state, size_t rank, int position) const {
    if (is_deferred_release(at(rank, position))) return is_free(state, rank, position);
    const auto& [lane, place] = places_[rank][static_cast<size_t>(position)];
    if (state[2 * lane + 1] > place) return true;
    const bool sends = at(rank, position).kind == OpKind::kSend && state[2 * lane] > place;
    return sends && has_left(state, rank, position) &&
           (place == 0 || ended(state, rank, lanes_[lane].ops[static_cast<size_t>(place) - 1]));
  }
  bool started(const State& state, size_t rank, int position) const {
    if (is_deferred_release(at(rank, position))) return is_free(state, rank, position);
    const auto& [lane, place] = places_[rank][static_cast<size_t>(position)];
    return state[2 * lane] > place;
  }
  bool is_free(const State& state, size_t rank, int position) const {  // all that it waits for has ended
    for (const Dependency& d : waits_[rank][static_cast<size_t>(position % size(rank))]) {
      const int before = position - position % size(rank) - d.distance * size(rank) + d.op;
      if (before >= 0 && !ended(state, rank, before)) return false;
    }
    return true;
  }

  bool may_happen(const State& state, size_t event) const {
    const auto& [rank, ops, asynchronous] = lanes_[event / 2];
    const int starts = state[event - event % 2], ends = state[event - event % 2 + 1];
    if (event % 2 == 1) {
      if (ends == starts) return false;
      const int position = ops[static_cast<size_t>(ends)];
      return at(rank, position).kind != OpKind::kReceive || has_come(state, rank, position);
    }
    if (starts == static_cast<int>(ops.size()) || (starts > ends && !asynchronous)) return false;
    const int position = ops[static_cast<size_t>(starts)];
    const auto& [compute, ops_a_step] = compute_[rank];
    return state[2 * compute + 1] >= position / size(rank) * ops_a_step && is_free(state, rank, position);
  }

  bool has_come(const State& state, size_t to, int position) const {
    const Value& value = at(to, position).writes[0];
    for (size_t from = 0; from < steps_.size(); ++from) {
      for (int i = 0; i < size(from); ++i) {
        if (const Op& send = at(from, i); send.kind == OpKind::kSend && send.reads[0] == value)
          return started(state, from, position / size(to) * size(from) + i);
      }
    }
    ADD_FAILURE() << value_name(steps_[to].mesh, value) << " is sent by nobody";
    return true;
  }

  // Its receive has ended.
  bool has_left(const State& state, size_t from, int position) const {
    const Value& value = at(from, position).reads[0];
    for (size_t to = 0; to < steps_.size(); ++to) {
      for (int i = 0; i < size(to); ++i) {
        if (const Op& receive = at(to, i); receive.kind == OpKind::kReceive && receive.writes[0] == value) {
          const auto& [lane, place] = places_[to][static_cast<size_t>(position / size(from) * size(to) + i)];
          return state[2 * lane + 1] > place;
        }
      }
    }
    return false;
  }

  int64_t held(const State& state) const {
    const Program& step = steps_[0];
    std::map<Value, bool> holds;
    int64_t bytes = 0;
    for (int i = 0; i < static_cast<int>(places_[0].size()); ++i) {  // accesses of a value keep this order
      if (!started(state, 0, i)) continue;
      const Op& one = at(0, i);
      const bool release = one.kind == OpKind::kRelease, over = ended(state, 0, i);
      for (const Value& value : one.writes) {
        if (!release || over) holds[value] = !release;
      }
      for (const Value& value : one.reads) {
        if (over && one.kind == OpKind::kBackward && value.kind == ValueKind::kGraph) holds[value] = false;
      }
      const auto scratch = step.scratch.find({one.kind, one.block});
      if (!over && scratch != step.scratch.end()) bytes += scratch->second;
    }
    for (const auto& [value, is_held] : holds) {
      const ValueInfo& info = step.values.at(value);
      const auto partial = partial_of_.find(value);
      if (!is_held || (partial != partial_of_.end() && holds[partial->second])) continue;
      if (value.tier == Tier::kDevice && !info.persistent && (info.slot < 0 || received_.contains(value)))
        bytes += info.bytes;
    }
    return bytes;
  }

  const std::vector<Program> steps_;
  std::vector<std::vector<std::vector<Dependency>>> waits_;  // by rank
  std::vector<LaneOfRank> lanes_;                            // of all ranks
  std::vector<std::pair<size_t, int>> compute_;              // by rank: the compute lane, and its ops in a step
  std::set<Value> received_;                                 // of the first rank
  std::map<Value, Value> partial_of_;                        // of the first rank: what a whole is summed of in place
  std::vector<std::vector<std::pair<size_t, int>>> places_;  // by rank and op: its lane, and its place there
  int64_t standing_ = 0;
};

// The bound as its header states it, by the transitive closure of what ops wait for. `before[i][k]`: k is over when i
// starts; of a deferred release, when it is over.
int64_t by_definition(const Program& step) {
  const size_t n = step.ops.size();
  const auto waits = dependencies(step);
  std::vector<std::vector<bool>> before(3 * n, std::vector<bool>(3 * n, false));  // [later][earlier]
  std::map<Lane, size_t> last;
  for (size_t i = 0; i < 3 * n; ++i) {
    const Op& one = step.ops[i % n];
    const auto add_start = [&](size_t earlier) {
      for (size_t k = 0; k < earlier; ++k) before[i][k] = before[i][k] || before[earlier][k];
    };
    const auto add = [&](size_t earlier) {
      add_start(earlier);
      before[i][earlier] = true;
      const Op& other = step.ops[earlier % n];
      if (is_deferred_release(other)) return;
      for (size_t k = 0; k < earlier; ++k) {  // lanes end in order
        if (step.ops[k % n].lane == other.lane && !is_deferred_release(step.ops[k % n])) before[i][k] = true;
      }
    };
    if (!is_deferred_release(one)) {
      if (last.contains(one.lane)) (is_asynchronous(one.lane) ? add_start(last[one.lane]) : add(last[one.lane]));
      last[one.lane] = i;
      for (size_t k = 0; k < i - i % n; ++k) {  // the compute lane ends a step before any op of the next starts
        if (step.ops[k % n].lane == Lane::kCompute) add(k);
      }
    }
    for (const Dependency& d : waits[i % n]) {
      const size_t back = static_cast<size_t>(d.distance) * n;
      if (i - i % n >= back) add(i - i % n - back + static_cast<size_t>(d.op));
    }
    for (size_t k = 0; k < i; ++k) {  // deferred releases are over when all that they wait for is
      if (!is_deferred_release(step.ops[k % n])) continue;
      const bool over = std::all_of(waits[k % n].begin(), waits[k % n].end(), [&](const Dependency& d) {
        const size_t back = static_cast<size_t>(d.distance) * n;
        return k - k % n < back || before[i][k - k % n - back + static_cast<size_t>(d.op)];
      });
      before[i][k] = before[i][k] || over;
    }
  }
  const auto scratch_of = [&](size_t i) {
    const auto found = step.scratch.find({step.ops[i % n].kind, step.ops[i % n].block});
    return found == step.scratch.end() ? 0 : found->second;
  };
  const auto own = [&](const Value& value) {
    const ValueInfo& info = step.values.at(value);
    return value.tier == Tier::kDevice && !info.persistent && info.slot < 0;
  };
  int64_t most = 0;
  for (size_t i = n; i < 2 * n; ++i) {
    int64_t bytes = scratch_of(i);
    bool takes = bytes != 0 || step.ops[i % n].lane == Lane::kCompute;
    for (const auto& [value, info] : step.values) {
      if (!own(value)) continue;
      bool alive = false, open = false, beside = false;
      for (size_t k = 0; k < 3 * n; ++k) {
        const auto &writes = step.ops[k % n].writes, &reads = step.ops[k % n].reads;
        const bool consumed = step.ops[k % n].kind == OpKind::kBackward && value.kind == ValueKind::kGraph &&
                              std::find(reads.begin(), reads.end(), value) != reads.end();
        if (!consumed && std::find(writes.begin(), writes.end(), value) == writes.end()) continue;
        const bool release = consumed || step.ops[k % n].kind == OpKind::kRelease;
        if (!release && !open) open = true, beside = !before[k][i], takes = takes || k == i;
        if (release && open) open = false, alive = alive || (beside && !before[i][k]);
      }
      if (alive || (open && beside)) bytes += info.bytes;
    }
    std::map<Lane, int64_t> scratch;
    for (size_t k = 0; k < 3 * n; ++k) {
      const Lane lane = step.ops[k % n].lane;
      if (lane != step.ops[i % n].lane && !before[i][k] && !before[k][i])
        scratch[lane] = std::max(scratch[lane], scratch_of(k));
    }
    for (const auto& [lane, of_lane] : scratch) bytes += of_lane;
    if (takes) most = std::max(most, bytes);
  }
  Program idle = step;
  idle.ops.clear();
  return in_order_peak(idle, Tier::kDevice).bytes + most;
}

// Writes and reads of a few values on three lanes, with sizes that tell every sum of them apart.
Program random_program(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<uint32_t>(below)); };
  const Lane lanes[] = {Lane::kCompute, Lane::kGather, Lane::kReduce};
  Program step;
  for (int v = 0; v < 4; ++v) step.values[activation(v, 0)] = {.bytes = int64_t{1} << v};
  for (int block = 0; block < 4; ++block) {
    if (draw(2) == 0) step.scratch[{OpKind::kForward, block}] = int64_t{16} << block;
  }
  const int ops = 3 + draw(3);
  for (int i = 0; i < ops; ++i) {
    std::vector<Value> reads, writes = {activation(draw(4), 0)};
    if (draw(2) == 0) reads.push_back(activation(draw(4), 0));
    const Lane lane = lanes[draw(3)];  // what a lane only starts has no scratch
    step.ops.push_back(written(is_asynchronous(lane) ? OpKind::kAllReduce : OpKind::kForward, lane, reads, writes));
    step.ops.back().block = draw(4);
  }
  return add_releases(step);
}

TEST(MemoryBound, IsNeverExceededByAnySchedule_AndReachedByMost) {
  int reached = 0;
  constexpr int kPrograms = 60;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const Program step = random_program(seed);
    const int64_t most = Schedules({step}).most_of_all(), bound = peak_bound(step, Tier::kDevice).bytes;
    EXPECT_LE(most, bound) << "seed " << seed;
    reached += most == bound ? 1 : 0;
  }
  EXPECT_GE(reached, kPrograms / 2) << "schedules that hold what the bound says";
}

TEST(MemoryBound, IsWhatItsDefinitionSays) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Program step = random_program(seed);
    EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, by_definition(step)) << "seed " << seed;
  }
  for (const Combination& one :
       {Combination{.micro_batches = 3, .dp = 2, .zero = 3}, Combination{.dp = 2, .zero = 2, .recompute = 2},
        Combination{.micro_batches = 2, .dp = 2, .zero = 1, .offload = true}, Combination{.layers = 3, .tied = true}}) {
    const Compiled compiled = compile(one);
    EXPECT_EQ(peak_bound(compiled.programs[0], Tier::kDevice).bytes, by_definition(compiled.programs[0])) << one.text();
  }
}

TEST(MemoryBound, AddsUpToItsTable) {
  const Compiled compiled = compile({.micro_batches = 3, .dp = 2, .zero = 3});
  const Peak peak = peak_bound(compiled.programs[0], Tier::kDevice);
  int64_t values = peak.pool_bytes;
  for (const auto& [kind, bytes] : peak.by_kind) values += bytes;
  EXPECT_GE(peak.bytes, values);
  ASSERT_GE(peak.op, 0);
  const Op& at = compiled.programs[0].ops[static_cast<size_t>(peak.op)];
  const auto scratch = compiled.programs[0].scratch.find({at.kind, at.block});
  EXPECT_EQ(peak.bytes - values, scratch == compiled.programs[0].scratch.end() ? 0 : scratch->second);
}

// A stage of two that passes micro-batches on, and the one that gives their gradients back, of 10 bytes each.
std::vector<Program> two_stages(int micro_batches) {
  std::vector<Program> steps(2);
  const Axis pp{"pp", {{1, 2}}};
  for (int rank = 0; rank < 2; ++rank) {
    steps[static_cast<size_t>(rank)].rank = rank;
    steps[static_cast<size_t>(rank)].mesh = {2, {pp}};
  }
  const auto add = [&](int rank, OpKind kind, Lane lane, std::vector<Value> reads, std::vector<Value> writes) {
    steps[static_cast<size_t>(rank)].ops.push_back(written(kind, lane, std::move(reads), std::move(writes)));
    steps[static_cast<size_t>(rank)].ops.back().axis = 0;
    steps[static_cast<size_t>(rank)].ops.back().peer = 1 - rank;
  };
  const auto message = [&](int from, const Value& value) {
    add(from, OpKind::kSend, Lane::kPeerOut, {value}, {});
    add(1 - from, OpKind::kReceive, Lane::kPeerIn, {}, {value});
  };
  for (int m = 0; m < micro_batches; ++m) {
    const Value x = activation(1, m), dx = activation_gradient(1, m);
    add(0, OpKind::kForward, Lane::kCompute, {}, {x});
    message(0, x);
    add(1, OpKind::kBackward, Lane::kCompute, {x}, {dx});
    message(1, dx);
    add(0, OpKind::kBackward, Lane::kCompute, {dx}, {});
    // Of what is received places alone.
    for (Program& step : steps) {
      const bool first = step.rank == 0;
      step.values[x] = {.bytes = 10, .slot = first ? -1 : 0};
      step.values[dx] = {.bytes = 10, .slot = first ? 0 : -1};
    }
  }
  for (Program& step : steps) step = add_releases(step);
  return steps;
}

TEST(MemoryBound, CountsWhatWasSentUntilItsGradientHasCome) {
  for (const int micro_batches : {1, 2, 50}) {
    const std::vector<Program> steps = two_stages(micro_batches);
    const Peak alone = peak_bound(steps[0], Tier::kDevice), both = peak_bound(steps[0], Tier::kDevice, steps);
    EXPECT_EQ(alone.bytes, 10 + 10 * micro_batches) << "sends may wait for ever";
    const int64_t few = 20;  // a place, and what is being sent: what was before it is released as soon as it has left
    EXPECT_EQ(both.bytes, few);
    // The second stage's gradients have left when the first has worked with them and sends on.
    EXPECT_EQ(peak_bound(steps[1], Tier::kDevice, steps).bytes, few);
  }
  const std::vector<Program> steps = two_stages(2);
  EXPECT_EQ(Schedules(steps).most_of_all(), 20);
  EXPECT_EQ(Schedules({steps[1], steps[0]}).most_of_all(), 20);
}

TEST(MemoryBound, OfPipelinesIsNeverExceeded) {
  for (const char* order : {"1f1b", "gpipe", "zero_bubble_h1"}) {
    std::vector<Program> steps = compile({.layers = 3, .micro_batches = 5, .pp = 3, .order = order}).programs;
    for (Program& step : steps) step = assign_slots(step);
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      const int64_t bound = peak_bound(steps[rank], Tier::kDevice, steps).bytes;
      std::vector<Program> own_first = steps;
      std::swap(own_first[0], own_first[rank]);
      int64_t most = 0;
      for (uint32_t seed = 0; seed < 6; ++seed) most = std::max(most, Schedules(own_first).most_of_one(seed));
      EXPECT_LE(most, bound) << order << " rank " << rank;
      EXPECT_GE(static_cast<double>(most), 0.97 * static_cast<double>(bound)) << order << " rank " << rank;
    }
  }
}

// Gathers of many groups that are used once each; they run ahead of their use as far as there are buffers.
Program many_gathers(int groups) {
  Program step;
  for (int g = 0; g < groups; ++g) {
    step.values[weight(g)] = {.bytes = 100};
    step.values[weight(g, kWhole.shard_on(0))] = {.bytes = 1, .persistent = true};
    step.ops.push_back(written(OpKind::kAllGather, Lane::kGather, {weight(g, kWhole.shard_on(0))}, {weight(g)}));
    step.ops.push_back(written(OpKind::kForward, Lane::kCompute, {weight(g)}, {}));
    step.ops.back().block = g;
  }
  return add_releases(step);
}

TEST(MemoryBound, CountsWhatMayRunAhead_InLongStepsToo) {
  for (const int groups : {10, 990, 1010, 5500}) {  // of three ops each
    const Program step = many_gathers(groups);
    EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, groups + 100);
    EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, groups + 100 * groups);
    EXPECT_EQ(peak_bound(assign_slots(step, {.gather_buffers = 1}), Tier::kDevice).bytes, groups + 100);
  }
}

TEST(MemoryBound, TakesTimeAboutInProportionToTheStep) {
  const auto cpu_time = [](int groups) {
    const Program step = many_gathers(groups);
    const std::clock_t start = std::clock();
    EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, groups + 100 * groups);
    return std::clock() - start;
  };
  const std::clock_t few = cpu_time(1400);
  EXPECT_LT(cpu_time(8 * 1400), 32 * few);  // 64 times as long if each op looked at all others
}

}  // namespace
}  // namespace herd::program::testing
