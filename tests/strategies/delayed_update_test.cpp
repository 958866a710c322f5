// Delayed updates as a rewrite: they prove with everything else, run beside the passes of the next step, and mutants of
// them are found.
#include "herd/strategies/delayed_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/base/error.h"
#include "herd/program/memory_bound.h"
#include "herd/program/op_dependencies.h"
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

spec::RunFile delayed_run(int dp, int zero, int64_t layers = 3, const std::string& offload = "states") {
  spec::RunFile run = offload_run(dp, zero, layers, offload);
  run.strategy.delayed_update = true;
  return run;
}

TEST(DelayedUpdate, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int pp : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const char* precision : {"fp32", "bf16"}) {
            for (const char* recompute : {"none", "full"}) {
              if (dp * pp * tp > 8 || (dp == 1 && zero > 0)) continue;
              if (++index % one_in(13, 67) != 0) continue;
              spec::RunFile run = delayed_run(dp, zero, 3, index % 2 == 0 ? "states" : "nvme");
              if (index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
              run.mesh.pp = pp, run.mesh.tp = tp;
              run.strategy.precision = precision, run.strategy.recompute = recompute;
              if (std::string_view(recompute) == "full") run.strategy.offload_activations = "host";
              if (dp == 4) run.mesh.fsdp = 2;
              const auto steps = steps_of(run, dp * pp * tp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
  spec::RunFile frozen = delayed_run(2, 3);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 2);
}

TEST(DelayedUpdate, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/delayed_update_zero2_dp2.txt",
                                 to_text(steps_of(delayed_run(2, 2, 1), 2)[0]));
}

// The host keeps the gradients that wait, 4 bytes a parameter in fp32, in place of staging buffers.
TEST(DelayedUpdate, KeepsGradientsOnTheHost) {
  for (const int64_t layers : {4, 12}) {
    spec::RunFile run = delayed_run(1, 0, layers);
    const auto model = spec::model_table(run, 1);
    const Program step = steps_of(run, 1)[0];
    int64_t waiting = 0;
    for (const auto& [value, info] : step.values) {
      if (value.kind != ValueKind::kGradient || value.tier != Tier::kHost) continue;
      EXPECT_TRUE(info.persistent);
      waiting += info.bytes;
    }
    EXPECT_EQ(waiting, 4 * model.parameters());
    const int64_t device = peak_bound(step, Tier::kDevice).bytes;
    run.strategy.delayed_update = false;
    EXPECT_EQ(device, peak_bound(steps_of(run, 1)[0], Tier::kDevice).bytes);
  }
}

// Where all updates wait for a norm, they take time of a step; delayed ones run beside passes, and the step is as long
// as passes and copies.
TEST(DelayedUpdate, RunsBesidePasses) {
  program::Calibration machine;
  machine.cores = 4;
  for (const char* precision : {"fp32", "bf16"}) {
    spec::RunFile run = delayed_run(1, 0, 4);
    run.model.width = 64, run.model.context = 512;
    run.strategy.precision = precision;
    const auto step_us = [&](const spec::RunFile& of) {
      return simulate(steps_of(of, 1), spec::program_table(of, 1), machine, program::SharedMemoryCost(machine)).step_us;
    };
    const double delayed_us = step_us(run);
    run.strategy.delayed_update = false;
    const double waiting_us = step_us(run);
    run.strategy.offload = "none";
    const double in_memory_us = step_us(run);
    EXPECT_LT(delayed_us, waiting_us) << precision;
    EXPECT_LT(delayed_us, in_memory_us) << precision;
  }
}

void expect_refused(const spec::RunFile& run, const std::string& what, const std::string& fix) {
  try {
    steps_of(run, 1);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(), testing::HasSubstr(what));
    EXPECT_THAT(error.message(), testing::HasSubstr("\n  fix: " + fix));
  }
}

TEST(DelayedUpdate, NamesWhatItDoesNotGoWith) {
  for (const char* offload : {"none", "window"})
    expect_refused(delayed_run(1, 0, 3, offload), "strategy.offload = \"" + std::string(offload) + "\"",
                   "strategy.offload = \"states\", or strategy.delayed_update = false");
  spec::RunFile run = delayed_run(1, 0);
  run.strategy.precision = "fp16";
  expect_refused(run, "strategy.precision = \"fp16\"", "strategy.precision = \"bf16\"");
}

// A step of another delay than the run states, either way, is a finding: the version of weights is proved.
TEST(DelayedUpdate, IsProvedByHowFarWeightsLag) {
  const spec::RunFile run = delayed_run(2, 2);
  spec::RunFile exact = run;
  exact.strategy.delayed_update = false;
  const auto delayed_steps = steps_of(run, 2), exact_steps = steps_of(exact, 2);
  EXPECT_EQ(first_finding(delayed_steps, expectation_of(run, 2)), "");
  EXPECT_NE(first_finding(delayed_steps, expectation_of(exact, 2)), "");
  EXPECT_NE(first_finding(exact_steps, expectation_of(run, 2)), "");
}

TEST(DelayedUpdate, MutantsAreFound) {
  for (const bool has_norm : {true, false}) {
    for (const char* precision : {"fp32", "bf16"}) {
      spec::RunFile run = delayed_run(2, has_norm ? 0 : 1);
      run.strategy.precision = precision;
      if (!has_norm) run.optimizer.clip = 0, run.health.check_finite = false;
      OpMutants mutants(steps_of(run, 2), expectation_of(run, 2), [](const Op& op) {
        return op.kind == OpKind::kStep || op.kind == OpKind::kFetch || op.kind == OpKind::kEvict;
      });
      mutants.expect_found("left out", [](std::vector<Op>& ops, size_t i) {
        ops.erase(ops.begin() + static_cast<long>(i));
        return true;
      });
      mutants.expect_found("twice", [](std::vector<Op>& ops, size_t i) {
        if (ops[i].kind != OpKind::kStep) return false;
        const Op again = ops[i];
        ops.insert(ops.begin() + static_cast<long>(i), again);
        return true;
      });
      // An update after the gradient of the same step has come: it is not delayed, and the older gradient is lost.
      mutants.expect_found("at the end", [](std::vector<Op>& ops, size_t i) {
        if (ops[i].kind != OpKind::kStep) return false;
        std::rotate(ops.begin() + static_cast<long>(i), ops.begin() + static_cast<long>(i) + 1, ops.end());
        return true;
      });
      // Weights that change between passes of one step.
      mutants.expect_found("weights at the begin", [](std::vector<Op>& ops, size_t i) {
        if (ops[i].kind != OpKind::kFetch) return false;
        const auto last_forward =
            std::find_if(ops.rbegin(), ops.rend(), [](const Op& op) { return op.kind == OpKind::kForward; });
        const Op fetch = ops[i];
        if (last_forward == ops.rend() || std::ranges::count(last_forward->reads, fetch.writes[0]) == 0) return false;
        ops.erase(ops.begin() + static_cast<long>(i));
        const auto at = std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::kForward; });
        ops.insert(at, fetch);
        return true;
      });
      EXPECT_GT(mutants.count(), 20);
    }
  }
}

}  // namespace
}  // namespace herd::strategies
