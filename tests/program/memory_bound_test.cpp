// The bound of a step's peak, against all schedules of small programs and against its definition.
#include "herd/program/memory_bound.h"

#include <gtest/gtest.h>

#include <chrono>
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

// Runs a few steps of a rank in every order that its lanes and hazards allow, and says how much it ever holds. An op
// takes its memory as it starts; a release gives it back as it ends.
class AllSchedules {
 public:
  explicit AllSchedules(const Program& step, int steps = 3) : step_(step), waits_(dependencies(step)) {
    for (int i = 0; i < steps * size(); ++i) lanes_[at(i).lane].push_back(i);
  }

  int64_t most() {
    Peak standing = in_order_peak(without_ops(), Tier::kDevice);
    std::vector<State> open = {State(lanes_.size())};
    std::set<State> seen = {open[0]};
    int64_t most = 0;
    while (!open.empty()) {
      const State state = open.back();
      open.pop_back();
      most = std::max(most, held(state));
      for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (!may_go_on(state, lane)) continue;
        State next = state;
        ++next[lane];
        if (seen.insert(next).second) open.push_back(std::move(next));
      }
    }
    return standing.bytes + most;
  }

 private:
  using State = std::vector<int>;  // starts and ends so far, by lane

  int size() const { return static_cast<int>(step_.ops.size()); }
  const Op& at(int position) const { return step_.ops[static_cast<size_t>(position % size())]; }
  Program without_ops() const {
    Program out = step_;
    out.ops.clear();
    return out;
  }
  const std::vector<int>& ops_of(size_t lane) const {
    return std::next(lanes_.begin(), static_cast<std::ptrdiff_t>(lane))->second;
  }

  std::set<int> events(const State& state, int earlier) const {  // ops that have started, or ended (earlier = 1)
    std::set<int> out;
    for (size_t lane = 0; lane < state.size(); ++lane) {
      for (int k = 0; k < (state[lane] + 1 - earlier) / 2; ++k) out.insert(ops_of(lane)[static_cast<size_t>(k)]);
    }
    return out;
  }

  bool may_go_on(const State& state, size_t lane) const {
    if (state[lane] % 2 == 1) return true;  // what runs may end
    const auto index = static_cast<size_t>(state[lane] / 2);
    if (index == ops_of(lane).size()) return false;
    const int position = ops_of(lane)[index];
    const std::set<int> ended = events(state, 1);
    for (const Dependency& d : waits_[static_cast<size_t>(position % size())]) {
      const int before = position - position % size() - d.distance * size() + d.op;
      if (before >= 0 && !ended.contains(before)) return false;
    }
    return true;
  }

  int64_t held(const State& state) const {
    const std::set<int> started = events(state, 0), ended = events(state, 1);
    std::map<Value, int> holds;
    int64_t bytes = 0;
    for (const int position : started) {  // hazards keep writes and releases of a value in the program's order
      const Op& one = at(position);
      const bool release = one.kind == OpKind::kRelease;
      for (const Value& value : one.writes) {
        if (!release || ended.contains(position)) holds[value] = release ? 0 : 1;
      }
      const auto scratch = step_.scratch.find({one.kind, one.block});
      if (!ended.contains(position) && scratch != step_.scratch.end()) bytes += scratch->second;
    }
    for (const auto& [value, held] : holds) {
      const ValueInfo& info = step_.values.at(value);
      if (held > 0 && !info.persistent && info.slot < 0) bytes += info.bytes;
    }
    return bytes;
  }

  const Program& step_;
  const std::vector<std::vector<Dependency>> waits_;
  std::map<Lane, std::vector<int>> lanes_;
};

// The bound as its header states it, by the transitive closure of what ops wait for.
int64_t by_definition(const Program& step) {
  const size_t n = step.ops.size();
  const auto waits = dependencies(step);
  std::vector<std::vector<bool>> before(3 * n, std::vector<bool>(3 * n, false));  // [later][earlier]
  std::map<Lane, size_t> last;
  for (size_t i = 0; i < 3 * n; ++i) {
    const auto add = [&](size_t earlier) {
      for (size_t k = 0; k < earlier; ++k) before[i][k] = before[i][k] || before[earlier][k];
      before[i][earlier] = true;
    };
    const Op& one = step.ops[i % n];
    if (last.contains(one.lane)) add(last[one.lane]);
    last[one.lane] = i;
    for (const Dependency& d : waits[i % n]) {
      const size_t back = static_cast<size_t>(d.distance) * n;
      if (i - i % n >= back) add(i - i % n - back + static_cast<size_t>(d.op));
    }
  }
  const auto scratch_of = [&](size_t i) {
    const auto found = step.scratch.find({step.ops[i % n].kind, step.ops[i % n].block});
    return found == step.scratch.end() ? 0 : found->second;
  };
  const auto own = [&](const Value& value) {
    const ValueInfo& info = step.values.at(value);
    return info.tier == Tier::kDevice && !info.persistent && info.slot < 0;
  };
  int64_t most = 0;
  for (size_t i = n; i < 2 * n; ++i) {
    int64_t bytes = scratch_of(i);
    bool takes = bytes != 0;
    for (const auto& [value, info] : step.values) {
      if (!own(value)) continue;
      bool alive = false, open = false, beside = false;
      for (size_t k = 0; k < 3 * n; ++k) {
        const auto& writes = step.ops[k % n].writes;
        if (std::find(writes.begin(), writes.end(), value) == writes.end()) continue;
        const bool release = step.ops[k % n].kind == OpKind::kRelease;
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
  for (int v = 0; v < 4; ++v) step.values[activation(v, 0)] = {int64_t{1} << v, Tier::kDevice, false, -1};
  for (int block = 0; block < 4; ++block) {
    if (draw(2) == 0) step.scratch[{OpKind::kForward, block}] = int64_t{16} << block;
  }
  const int ops = 3 + draw(3);
  for (int i = 0; i < ops; ++i) {
    std::vector<Value> reads, writes = {activation(draw(4), 0)};
    if (draw(2) == 0) reads.push_back(activation(draw(4), 0));
    step.ops.push_back(written(OpKind::kForward, lanes[draw(3)], reads, writes));
    step.ops.back().block = draw(4);
  }
  return add_releases(step);
}

TEST(MemoryBound, IsNeverExceededByAnySchedule_AndReachedByMost) {
  int reached = 0;
  constexpr int kPrograms = 60;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const Program step = random_program(seed);
    const int64_t most = AllSchedules(step).most(), bound = peak_bound(step, Tier::kDevice).bytes;
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

// Gathers of many groups that are used once each; they run ahead of their use as far as there are buffers.
Program many_gathers(int groups) {
  Program step;
  for (int g = 0; g < groups; ++g) {
    step.values[weight(g)] = {100, Tier::kDevice, false, -1};
    step.values[weight(g, Form::kShard)] = {1, Tier::kDevice, true, -1};
    step.ops.push_back(written(OpKind::kAllGather, Lane::kGather, {weight(g, Form::kShard)}, {weight(g)}));
    step.ops.push_back(written(OpKind::kForward, Lane::kCompute, {weight(g)}, {}));
    step.ops.back().block = g;
  }
  return add_releases(step);
}

TEST(MemoryBound, CountsWhatMayRunAhead_InLongStepsToo) {
  for (const int groups : {10, 990, 1010, 16700}) {  // of three ops each
    const Program step = many_gathers(groups);
    EXPECT_EQ(in_order_peak(step, Tier::kDevice).bytes, groups + 100);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(peak_bound(step, Tier::kDevice).bytes, groups + 100 * groups);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 10) << groups << " groups";  // a sanitizer's time; else well under a second
    EXPECT_EQ(peak_bound(assign_slots(step, {.gather_buffers = 1}), Tier::kDevice).bytes, groups + 100);
  }
}

}  // namespace
}  // namespace herd::program::testing
