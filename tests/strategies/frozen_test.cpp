// Frozen parameters in the step's program: what it leaves out, that it proves, and that mutants of it do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

constexpr program::Placement kShard = program::kWhole.shard_on(0);  // along dp, the mesh's first axis

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile frozen_run(const std::string& frozen, int zero, const std::string& recompute = "none",
                         bool tied = false) {
  spec::RunFile run = small_run(3, recompute, 6, tied);
  run.model.frozen = frozen;
  run.strategy.zero = zero;
  return run;
}

TEST(Frozen, Proves_ForEveryStageRecomputeAndPlace) {
  int index = 0;
  for (const char* frozen :
       {"wte.weight", "*.bias", "h.1.*", "w*.weight h.0.* h.1.*", "w*.weight h.*", "h.*.weight ln_f.*"}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const char* recompute : {"none", "full", "every:2"}) {
        for (const int ranks : {1, 2, 3}) {
          const bool tied = index % 2 == 0;
          spec::RunFile run = frozen_run(frozen, zero, recompute, tied);
          run.strategy.keep_whole = index++ % 4;
          if (tied && std::string(frozen) == "w*.weight h.*") continue;
          if (index % one_in(5, 61) != 0) continue;
          steps_of(run, ranks);
        }
      }
    }
  }
}

TEST(Frozen, HasWeightsAlone_AndBlocksBelowWhatIsTrainedAreRunForwardOnly) {
  const spec::RunFile run = frozen_run("w*.weight h.0.* h.1.* h.2.*.bias", 3);
  const auto model = spec::model_table(run, 1);
  const Program step = steps_of(run, 2)[0];
  std::set<int> gradients, states, stepped;
  for (const auto& [value, info] : step.values) {
    if (value.kind == ValueKind::kGradient) gradients.insert(value.index);
    if (value.kind == ValueKind::kState) states.insert(value.index);
  }
  std::set<int> backward, graphs;
  for (const Op& op : step.ops) {
    if (op.kind == OpKind::kBackward) backward.insert(op.block);
    if (op.kind == OpKind::kStep) stepped.insert(op.reads[0].index);
    for (const Value& value : op.writes)
      if (value.kind == ValueKind::kGraph && op.kind == OpKind::kForward) graphs.insert(value.index);
  }
  std::set<int> trained;
  for (int g = 0; g < static_cast<int>(model.groups.size()); ++g)
    if (!model.groups[static_cast<size_t>(g)].frozen) trained.insert(g);
  EXPECT_EQ(gradients, trained);
  EXPECT_EQ(states, trained);
  EXPECT_EQ(stepped, trained);
  EXPECT_EQ(backward, std::set<int>{3});
  EXPECT_EQ(graphs, std::set<int>{3});
  EXPECT_TRUE(step.values.contains(program::weight(1, kShard))) << "ZeRO-3 cuts frozen weights, too";
  EXPECT_FALSE(steps_of(frozen_run("h.1.*", 2), 2)[0].values.contains(program::weight(2, kShard)));
}

std::string finding(const std::vector<Program>& steps, const spec::RunFile& run) {
  return first_finding(steps, expectation_of(run, static_cast<int>(steps.size())));
}

using testing::HasSubstr;

TEST(FrozenMutants, AreFound) {
  const spec::RunFile run = frozen_run("h.1.*", 3);
  const auto steps = steps_of(run, 2);
  ASSERT_EQ(finding(steps, run), "");
  auto mutants = steps;  // a step of what is trained writes a frozen shard instead
  for (Program& step : mutants) {
    for (Op& op : step.ops) {
      if (op.kind == OpKind::kStep && op.reads[0].index == 1) op.writes[0] = program::weight(2, kShard);
    }
  }
  EXPECT_THAT(finding(mutants, run), HasSubstr("writes w2.shard(dp) with the gradient of group 1"));
  mutants = steps;  // its backward leaves a gradient
  for (Program& step : mutants) {
    step.values[program::gradient(2)] = step.values.at(program::gradient(1));
    for (Op& op : step.ops) {
      if (op.kind == OpKind::kBackward && op.block == 2) op.writes.push_back(program::gradient(2));
    }
  }
  EXPECT_THAT(finding(mutants, run), HasSubstr("which is no gradient of its block"));
  mutants = steps;  // it is not gathered before a pass
  for (Program& step : mutants) {
    step.ops.erase(std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) {
      return op.kind == OpKind::kAllGather && op.writes[0] == program::weight(2);
    }));
  }
  EXPECT_THAT(finding(mutants, run), HasSubstr("w2, which holds nothing"));
  mutants = steps;  // it has a state, which nobody needs
  for (Program& step : mutants) step.values[program::state(2)] = step.values.at(program::state(1, kShard));
  EXPECT_THAT(finding(mutants, run), HasSubstr("keeps a state of frozen group 2"));
}

TEST(Frozen, WritesTheGoldenStep) {
  spec::RunFile run = frozen_run("w*.weight h.0.* h.1.*.bias", 3);
  run.model.layers = 2;
  run.train.batch = 2;
  testing_support::expect_golden("tests/strategies/golden/frozen_zero3_dp2.txt", to_text(steps_of(run, 2)[0]));
}

}  // namespace
}  // namespace herd::strategies
