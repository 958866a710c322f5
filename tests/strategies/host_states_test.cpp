// Optimizer states on the host as a rewrite: it proves with everything else, its staging is for two groups, and mutants
// of it are found.
#include "herd/strategies/host_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

spec::RunFile offload_run(int dp, int zero, int64_t layers = 3) {
  spec::RunFile run = small_run(layers, "none", 2 * dp, true);
  run.strategy.zero = zero;
  run.strategy.offload = "states";
  run.strategy.bucket = 4096;
  return run;
}

TEST(HostStates, Prove_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2, 4}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int pp : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const char* precision : {"fp32", "bf16", "fp16"}) {
            for (const char* recompute : {"none", "full"}) {
              if (dp * pp * tp > 8 || (dp == 1 && zero > 0)) continue;
              if (++index % one_in(7, 67) != 0) continue;
              spec::RunFile run = offload_run(dp, zero);
              run.mesh.pp = pp, run.mesh.tp = tp;
              run.strategy.precision = precision, run.strategy.recompute = recompute;
              if (dp == 4) run.mesh.fsdp = 2;
              const auto steps = steps_of(run, dp * pp * tp);
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
  spec::RunFile frozen = offload_run(2, 3);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 2);
}

TEST(HostStates, AreReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/host_states_zero2_dp2.txt",
                                 to_text(steps_of(offload_run(2, 2, 1), 2)[0]));
}

// AdamW: 12 bytes a parameter stay on the host, and staging is two buffers of layers and those of what is much smaller
// or larger; the device holds weights and gradients.
TEST(HostStates, TakeTwelveBytesAParameterOfTheHost_AndStagingForTwoGroups) {
  for (const int64_t layers : {4, 12}) {
    const spec::RunFile run = offload_run(1, 0, layers);
    const auto model = spec::model_table(run, 1);
    const Program step = steps_of(run, 1)[0];
    int64_t staging = 0;
    std::map<int, int64_t> slots;
    for (const auto& [value, info] : step.values) {
      if (value.tier == Tier::kHost && info.slot >= 0) slots[info.slot] = std::max(slots[info.slot], info.bytes);
    }
    for (const auto& [slot, bytes] : slots) staging += bytes;
    const int64_t losses = step.micro_batches * 16, norms = 8 * static_cast<int64_t>(model.groups.size());
    EXPECT_EQ(in_order_peak(step, Tier::kHost).bytes, 12 * model.parameters() + staging + losses + 8 + norms);
    const int64_t layer = 4 * model.group_elements(2);
    EXPECT_LE(staging, 2 * layer + 4 * (model.group_elements(0) + 2 * model.group_elements(1)));
    EXPECT_TRUE(step.values.contains(program::weight(0)));
  }
}

// A gradient goes out, is stepped and comes back as a weight, each on its lane; the next forward waits for its own
// weights alone, which the order of the groups lets come first.
TEST(HostStates, CopyAndStepOnLanesOfTheirOwn_InTheOrderOfTheBlocks) {
  const Program step = steps_of(offload_run(1, 0), 1)[0];
  std::vector<int> evicted, stepped, fetched;
  for (const Op& op : step.ops) {
    if (op.kind == OpKind::kEvict) {
      EXPECT_EQ(op.lane, Lane::kCopyOut);
      evicted.push_back(op.reads[0].index);
    }
    if (op.kind == OpKind::kStep) {
      EXPECT_EQ(op.lane, Lane::kHost);
      stepped.push_back(op.reads[0].index);
    }
    if (op.kind == OpKind::kFetch) {
      EXPECT_EQ(op.lane, Lane::kCopyIn);
      fetched.push_back(op.writes[0].index);
    }
  }
  EXPECT_THAT(evicted, testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(stepped, evicted);
  EXPECT_EQ(fetched, evicted);
}

TEST(HostStates, MutantsAreFound) {
  for (const int zero : {0, 1, 3}) {
    const spec::RunFile run = offload_run(2, zero);
    const auto steps = steps_of(run, 2);
    const program::Expectation expected = expectation_of(run, 2);
    ASSERT_EQ(first_finding(steps, expected), "");
    int mutants = 0;
    const auto expect_found = [&](const char* what, const std::function<bool(std::vector<Op>&, size_t)>& change) {
      for (size_t i = 0; i < steps[0].ops.size(); ++i) {
        const Op& op = steps[0].ops[i];
        if (op.kind != OpKind::kEvict && op.kind != OpKind::kFetch && op.lane != Lane::kHost) continue;
        if (op.kind == OpKind::kRelease) continue;
        auto mutant = steps;
        if (!change(mutant[1].ops, i)) continue;
        ++mutants;
        EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], op);
      }
    };
    expect_found("left out", [](std::vector<Op>& ops, size_t i) {
      ops.erase(ops.begin() + static_cast<long>(i));
      return true;
    });
    expect_found("twice", [](std::vector<Op>& ops, size_t i) {
      const Op copy = ops[i];
      ops.insert(ops.begin() + static_cast<long>(i), copy);
      return true;
    });
    expect_found("of another group", [](std::vector<Op>& ops, size_t i) {
      Value& value = ops[i].kind == OpKind::kFetch ? ops[i].reads[0] : ops[i].writes[0];
      value.index = value.index == 0 ? 1 : 0;
      return true;
    });
    expect_found("the other way", [](std::vector<Op>& ops, size_t i) {
      if (ops[i].kind != OpKind::kEvict && ops[i].kind != OpKind::kFetch) return false;
      ops[i].kind = ops[i].kind == OpKind::kEvict ? OpKind::kFetch : OpKind::kEvict;
      return true;
    });
    EXPECT_GT(mutants, 50);
  }
}

}  // namespace
}  // namespace herd::strategies
