// A window of weights as a rewrite: it proves with everything else, holds as many weights as it says, hides its copies
// behind passes, and mutants of it are found.
#include "herd/strategies/weight_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/base/error.h"
#include "herd/program/excerpts.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

spec::RunFile window_run(int64_t window, int64_t layers = 4, int dp = 1) {
  spec::RunFile run = small_run(layers, "none", 2 * dp, true);
  run.strategy.offload = "window";
  run.strategy.window = window;
  run.strategy.bucket = 4096;
  return run;
}

TEST(WeightWindow, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2}) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const char* precision : {"fp32", "bf16", "fp16"}) {
          for (const char* recompute : {"none", "full", "every:2"}) {
            for (const int64_t window : {1, 2, 5}) {
              if (++index % one_in(7, 67) != 0) continue;
              spec::RunFile run = window_run(window, 3, dp);
              if (index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
              run.mesh.pp = pp, run.mesh.tp = tp;
              run.strategy.precision = precision, run.strategy.recompute = recompute;
              const auto steps = steps_of(run, dp * pp * tp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
  spec::RunFile frozen = window_run(2);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 1);
}

TEST(WeightWindow, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/weight_window.txt",
                                 to_text(steps_of(window_run(2, 1), 1)[0]));
}

// The device holds gradients and `window` buffers of a layer's weights, whatever the number of layers; beside them
// those of the embeddings, which have other sizes. The host holds all weights.
TEST(WeightWindow, HoldsTheWeightsOfAsManyPassesAsItSays) {
  for (const int64_t layers : {8, 16}) {
    for (const int64_t window : {1, 2, 4}) {
      const spec::RunFile run = window_run(window, layers);
      const spec::ModelTable model = spec::program_table(run, 1);
      const Program step = steps_of(run, 1)[0];
      std::map<int, int64_t> slots;
      int64_t on_host = 0;
      for (const auto& [value, info] : step.values) {
        if (value.kind != ValueKind::kWeight) continue;
        if (value.tier == Tier::kHost && info.persistent) on_host += info.bytes;
        if (value.tier == Tier::kDevice) slots[info.slot] = std::max(slots[info.slot], info.bytes);
      }
      const int64_t layer = 4 * model.group_elements(2);
      EXPECT_EQ(std::count_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.second == layer; }),
                window);
      EXPECT_EQ(on_host, 4 * model.parameters());
    }
  }
}

TEST(WeightWindow, HidesItsCopiesBehindPasses) {
  program::Calibration machine;
  machine.cores = 4;
  const auto step_us = [&](const spec::RunFile& run) {
    return simulate(steps_of(run, 1), spec::program_table(run, 1), machine, program::SharedMemoryCost(machine)).step_us;
  };
  spec::RunFile states = window_run(2, 12);
  states.strategy.offload = "states";
  const double kept_us = step_us(states);
  const double one_us = step_us(window_run(1, 12)), two_us = step_us(window_run(2, 12));
  EXPECT_LT(two_us, one_us);
  EXPECT_LT(two_us, 1.12 * kept_us);
}

TEST(WeightWindow, NeedsWholeWeights) {
  spec::RunFile run = window_run(2, 4, 2);
  run.strategy.zero = 1;
  try {
    steps_of(run, 2);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(), testing::HasSubstr("fix: strategy.zero = 0"));
  }
  steps_of(run, 1);  // one rank cuts nothing
}

// A validation fetches what its forwards need, too.
TEST(WeightWindow, FetchesForAForwardAlone) {
  const Program forward = program::forward_only(steps_of(window_run(2, 3), 1)[0]);
  int fetches = 0;
  for (const Op& op : forward.ops) fetches += op.kind == OpKind::kFetch;
  EXPECT_GE(fetches, 5);
}

TEST(WeightWindow, MutantsAreFound) {
  const spec::RunFile run = window_run(2, 3, 2);
  const auto steps = steps_of(run, 2);
  const program::Expectation expected = expectation_of(run, 2);
  ASSERT_EQ(first_finding(steps, expected), "");
  OpMutants mutants(steps, expected, [](const Op& op) { return op.kind == OpKind::kFetch; });
  mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
    ops.erase(ops.begin() + static_cast<long>(i));
    return true;
  });
  mutants.expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
    ops[i].reads[0].index = ops[i].reads[0].index == 0 ? 1 : 0;
    return true;
  });
  mutants.expect_found("into another", [](std::vector<Op>& ops, size_t i) {
    ops[i].writes[0].index = ops[i].writes[0].index == 0 ? 1 : 0;
    return true;
  });
  mutants.expect_found("after its use", move_after_use);
  EXPECT_GT(mutants.count(), 40);
}

}  // namespace
}  // namespace herd::strategies
