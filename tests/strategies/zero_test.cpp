// ZeRO-1, 2 and 3 as rewrites: what they write, that it proves, that mutants of it do not, and what memory it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/spec/model_states.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

struct Shape {
  int stage = 1, ranks = 2;
  int64_t micro_batches = 1, layers = 2;
  bool tied = false;
  std::string recompute = "none";
  int64_t prefetch = 1, keep_whole = 0;
};

spec::RunFile zero_run(const Shape& shape) {
  spec::RunFile run = small_run(shape.layers, shape.recompute, shape.ranks * shape.micro_batches, shape.tied);
  run.strategy.zero = shape.stage;
  run.strategy.prefetch = shape.prefetch;
  run.strategy.keep_whole = shape.keep_whole;
  return run;
}

std::vector<Program> zero_steps(const Shape& shape) { return strategies::steps_of(zero_run(shape), shape.ranks); }

TEST(Zero, Proves_ForEveryStageRecomputeAndLayout) {
  int index = 0;
  for (const int stage : {1, 2, 3}) {
    for (const char* recompute : {"none", "full", "sqrt", "every:3", "selective"}) {
      for (const int ranks : {2, 3, 4, 7}) {
        for (const int64_t micro_batches : {1, 2, 3}) {
          for (const bool tied : {false, true}) {
            for (const int64_t prefetch : {0, 1, 3}) {
              if (prefetch != 1 && stage < 3) continue;
              if (++index % one_in(7, 131) != 0) continue;
              const int64_t keep_whole = stage == 3 ? (index / one_in(7, 131)) % 7 : 0;  // of 5 or 6 groups
              const auto steps = zero_steps({stage, ranks, micro_batches, 4, tied, recompute, prefetch, keep_whole});
              EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
            }
          }
        }
      }
    }
  }
}

int64_t standing_bytes(const Program& step, ValueKind kind) {
  Program idle = step;
  idle.ops.clear();
  const auto by_kind = in_order_peak(idle, Tier::kDevice).by_kind;
  const auto at = by_kind.find(kind);
  return at == by_kind.end() ? 0 : at->second;
}

TEST(Zero, KeepsTheStatesThatTheEquationsState) {
  for (const int ranks : {2, 4}) {
    for (const int stage : {1, 2, 3}) {
      // Widths of which every group divides into lines of 64 bytes for each rank, so that nothing is padding.
      spec::RunFile run = zero_run({stage, ranks});
      run.model.width = 64;
      run.model.vocab = run.model.context = 64;
      const auto model = spec::model_table(run, 1);
      const Program step = compile_step(run, model, trainable_layout(run, ranks), 0);
      const double kept =
          static_cast<double>(standing_bytes(step, ValueKind::kWeight) + standing_bytes(step, ValueKind::kGradient) +
                              standing_bytes(step, ValueKind::kState));
      EXPECT_EQ(kept, spec::zero_state_bytes(static_cast<double>(model.parameters()), ranks, stage, spec::kFp32Adam));
      run.optimizer.momentum_precision = "bf16";
      const Program narrow = compile_step(run, model, trainable_layout(run, ranks), 0);
      EXPECT_EQ(standing_bytes(narrow, ValueKind::kState) * 8, standing_bytes(step, ValueKind::kState) * 6);
    }
  }
}

double sent(const Program& step) {  // bytes of weights and gradients
  double bytes = 0;
  for (const Op& op : step.ops) {
    if (!is_collective(op)) continue;
    if (op.writes[0].kind == ValueKind::kNorm) continue;
    const double n = step.mesh.size(op.axis), whole = static_cast<double>(message_bytes(step, op));
    bytes += (op.kind == OpKind::kAllReduce ? 2 : 1) * whole * (n - 1) / n;
  }
  return bytes;
}

TEST(Zero, SendsWhatTheEquationsState) {
  for (const int ranks : {2, 4}) {
    for (const int stage : {1, 2, 3}) {
      for (const std::string recompute : {"none", "full"}) {
        spec::RunFile run = zero_run({stage, ranks});
        run.model.width = run.model.vocab = run.model.context = 64;
        run.strategy.recompute = recompute;
        const auto model = spec::model_table(run, 1);
        const Program step = compile_step(run, model, trainable_layout(run, ranks), 0);
        const double psi = static_cast<double>(model.parameters());
        double elements = spec::zero_elements_sent(psi, ranks, stage);
        // Embedding and loss block are gathered once: the one is differentiated without weights, the other in one pass.
        const double once = static_cast<double>(model.group_elements(0) + model.group_elements(3));
        if (stage == 3) elements -= once * (ranks - 1) / ranks;
        EXPECT_DOUBLE_EQ(sent(step), 4 * elements) << stage << " " << ranks << " " << recompute;
      }
    }
  }
}

TEST(HybridShards, Prove_AndSumAShardAmongItsCopiesOnce) {
  int index = 0;
  for (const int fsdp : {2, 3}) {
    for (const int dp : {1, 2}) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const int64_t micro_batches : {1, 3}) {
          if (++index % one_in(1, 5) != 0) continue;
          spec::RunFile run = zero_run({stage, fsdp * dp, micro_batches});
          run.mesh.fsdp = fsdp;
          const auto model = spec::model_table(run, 1);
          const auto steps = compile_and_verify(run, model, trainable_layout(run, fsdp * dp));
          int among_copies = 0;
          for (const Op& op : steps[0].ops) {
            if (op.kind != OpKind::kAllReduce || op.axis != steps[0].mesh.find("dp")) continue;
            for (const Value& value : op.writes) {
              EXPECT_NE(value.placement.shard, 0u);
              ++among_copies;
            }
          }
          EXPECT_EQ(among_copies, dp > 1 ? static_cast<int>(model.groups.size()) : 0);
        }
      }
    }
  }
}

TEST(Zero3, HoldsAsManyGatheredBlocksAsPrefetchAsksFor) {
  for (const int64_t prefetch : {0, 1, 2}) {
    const Program step = zero_steps({.stage = 3, .ranks = 2, .layers = 6, .prefetch = prefetch})[0];
    std::set<int> slots;
    for (int group = 1; group <= 6; ++group) slots.insert(step.values.at(program::weight(group)).slot);
    EXPECT_EQ(static_cast<int64_t>(slots.size()), prefetch + 1);
    // The embedding is larger than twice a block here or less than half of it, so it has a buffer of its own.
    EXPECT_FALSE(slots.contains(step.values.at(program::weight(0)).slot));
  }
}

// Groups: embedding, four blocks, loss. The blocks are gathered twice a micro-batch, so they are kept first.
TEST(Zero3, GathersAGroupThatItKeepsWholeOnceAStep_AndHoldsAndSendsWhatTheEquationsState) {
  constexpr int kRanks = 4;
  for (const int64_t keep_whole : {0, 1, 3, 4, 5, 9}) {
    const Shape shape{.stage = 3, .ranks = kRanks, .micro_batches = 3, .layers = 4, .keep_whole = keep_whole};
    spec::RunFile run = zero_run(shape);
    run.model.width = run.model.vocab = run.model.context = 64;  // so that nothing is padding
    const auto model = spec::model_table(run, 1);
    const Program step = compile_step(run, model, trainable_layout(run, kRanks), 0);
    const std::vector<int> order = {1, 2, 3, 4, 0, 5};
    const std::set<int> kept(order.begin(), order.begin() + std::min<int64_t>(keep_whole, 6));
    std::map<int, int> gathers;
    for (const Op& op : step.ops)
      if (op.kind == OpKind::kAllGather) ++gathers[op.writes[0].index];
    double gathered = 0, whole = 0;  // elements
    for (int group = 0; group < 6; ++group) {
      EXPECT_EQ(gathers[group], kept.contains(group) ? 1 : group % 5 == 0 ? 3 : 6) << group << " of " << keep_whole;
      EXPECT_EQ(step.values.at(program::weight(group)).persistent, kept.contains(group));
      const auto elements = static_cast<double>(model.group_elements(group));
      gathered += elements * gathers[group];
      if (kept.contains(group)) whole += elements;
    }
    const auto psi = static_cast<double>(model.parameters());
    EXPECT_DOUBLE_EQ(sent(step), 4 * (gathered + 3 * psi) * (kRanks - 1) / kRanks);
    const auto standing = standing_bytes(step, ValueKind::kWeight) + standing_bytes(step, ValueKind::kGradient) +
                          standing_bytes(step, ValueKind::kState);
    EXPECT_EQ(static_cast<double>(standing),
              spec::zero_state_bytes(psi, kRanks, 3, spec::kFp32Adam) + 4 * whole * (kRanks - 1) / kRanks);
  }
}

TEST(Zero3, WithAllGroupsKeptWhole_IsZero2) {
  for (const bool tied : {false, true}) {
    const Shape whole{.stage = 3, .micro_batches = 2, .tied = tied, .keep_whole = 100};
    const Shape zero2{.stage = 2, .micro_batches = 2, .tied = tied};
    EXPECT_EQ(to_text(zero_steps(whole)[1]), to_text(zero_steps(zero2)[1]));
  }
}

TEST(Zero, CutsAnythingOverAnyNumberOfRanks_SomeOfThemWithNothing) {
  EXPECT_EQ(spec::shard_bytes(64, 4), 64);  // one line: the first rank has it all
  EXPECT_EQ(spec::shard_bytes(0, 4), 0);
  EXPECT_EQ(spec::shard_bytes(257, 4), 128);
  EXPECT_EQ(spec::shard_bytes(256, 4), 64);
  zero_steps({.stage = 3, .ranks = 40, .layers = 1});  // proves
}

std::string finding(const std::vector<Program>& steps, const Shape& shape) {
  return first_finding(steps, expectation_of(zero_run(shape), shape.ranks));
}

// The n-th op of a kind, and of weights, gradients or norms.
std::vector<Op>::iterator find_op(Program& step, OpKind kind, ValueKind of, int n = 0) {
  return std::find_if(step.ops.begin(), step.ops.end(), [&](const Op& op) {
    return op.kind == kind && !op.writes.empty() && op.writes[0].kind == of && n-- == 0;
  });
}

using testing::HasSubstr;

TEST(ZeroMutants, AMissingGatherIsFound) {
  for (const int stage : {1, 2, 3}) {
    const Shape shape{.stage = stage, .micro_batches = 2};
    auto steps = zero_steps(shape);
    for (Program& step : steps) step.ops.erase(find_op(step, OpKind::kAllGather, ValueKind::kWeight));
    EXPECT_THAT(finding(steps, shape), testing::AnyOf(HasSubstr("of version -1"), HasSubstr("holds nothing"))) << stage;
    steps = zero_steps(shape);
    steps[1].ops.erase(find_op(steps[1], OpKind::kAllGather, ValueKind::kWeight));
    EXPECT_THAT(finding(steps, shape),
                testing::AnyOf(HasSubstr("meets another"), HasSubstr("of version -1"), HasSubstr("holds nothing")));
  }
}

TEST(ZeroMutants, AGroupKeptWholeThatIsNotGathered_OrBeforeItsUpdate_OrTwice_IsFound) {
  const Shape shape{.stage = 3, .micro_batches = 2, .keep_whole = 2};
  const auto gather_of_kept = [](Program& step) {
    return std::find_if(step.ops.begin(), step.ops.end(), [&](const Op& op) {
      return op.kind == OpKind::kAllGather && step.values.at(op.writes[0]).persistent;
    });
  };
  auto steps = zero_steps(shape);
  for (Program& step : steps) step.ops.erase(gather_of_kept(step));
  EXPECT_THAT(finding(steps, shape), HasSubstr("of version -1"));
  steps = zero_steps(shape);
  for (Program& step : steps) {
    const auto gather = gather_of_kept(step), update = gather - 2;  // between them a release of the gradient
    ASSERT_EQ(update->kind, OpKind::kStep);
    std::iter_swap(update, gather);
  }
  EXPECT_NE(finding(steps, shape), "");
  steps = zero_steps(shape);
  for (Program& step : steps) {
    const Op copy = *gather_of_kept(step);
    step.ops.insert(gather_of_kept(step), copy);
  }
  EXPECT_THAT(finding(steps, shape), HasSubstr("which nobody has read"));
  // Its memory given to a group that comes and goes.
  steps = zero_steps(shape);
  for (Program& step : steps) step.values.at(program::weight(0)).slot = step.values.at(program::weight(1)).slot;
  EXPECT_THAT(finding(steps, shape), HasSubstr("while it holds"));
}

TEST(ZeroMutants, ADoubleReduceIsFound) {
  for (const int stage : {1, 2, 3}) {
    const Shape shape{.stage = stage};
    auto steps = zero_steps(shape);
    for (Program& step : steps) {
      const auto reduce = find_op(step, OpKind::kReduceScatter, ValueKind::kGradient);
      const Op copy = *reduce;
      step.ops.insert(reduce, copy);
    }
    EXPECT_NE(finding(steps, shape), "") << stage;
  }
  // Of a later micro-batch: the shard has it already.
  const Shape shape{.stage = 2, .micro_batches = 2};
  auto steps = zero_steps(shape);
  for (Program& step : steps) {
    const auto reduce = std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) {
      return op.kind == OpKind::kReduceScatter && op.reads.size() == 2 * op.writes.size();
    });
    ASSERT_NE(reduce, step.ops.end());
    const Op copy = *reduce;
    step.ops.insert(reduce, copy);
  }
  EXPECT_THAT(finding(steps, shape), HasSubstr("twice"));
}

TEST(ZeroMutants, AReduceThatForgetsWhatTheShardHoldsIsFound) {
  const Shape shape{.stage = 2, .micro_batches = 3};
  auto steps = zero_steps(shape);
  for (Program& step : steps) {
    for (Op& op : step.ops) {
      if (op.kind == OpKind::kReduceScatter && op.reads.size() == 2 * op.writes.size())
        op.reads.resize(op.writes.size());
    }
  }
  EXPECT_NE(finding(steps, shape), "");
}

TEST(ZeroMutants, AReleaseTooEarlyIsFound) {
  const Shape shape{.stage = 3};
  auto steps = zero_steps(shape);
  for (Program& step : steps) {
    auto& ops = step.ops;
    const auto release = std::find_if(ops.begin(), ops.end(), [](const Op& op) {
      return op.kind == OpKind::kRelease && !op.writes.empty() && op.writes[0].kind == ValueKind::kWeight;
    });
    ASSERT_NE(release, ops.end());
    const Op copy = *release;
    ops.erase(release);
    const Value value = copy.writes[0];
    const auto use = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
      return op.lane == program::Lane::kCompute && std::find(op.reads.begin(), op.reads.end(), value) != op.reads.end();
    });
    ops.insert(use, copy);
  }
  EXPECT_NE(finding(steps, shape), "");
}

TEST(ZeroMutants, AnotherOrderOfCollectivesOnOneRankIsFound) {
  for (const int stage : {1, 2, 3}) {
    const Shape shape{.stage = stage};
    auto steps = zero_steps(shape);
    std::iter_swap(find_op(steps[1], OpKind::kAllGather, ValueKind::kWeight, 1),
                   find_op(steps[1], OpKind::kAllGather, ValueKind::kWeight, 2));
    EXPECT_THAT(finding(steps, shape), HasSubstr("meets another collective")) << stage;
  }
}

TEST(ZeroMutants, AWholeGradientInTheBufferOfAnotherIsFound) {
  const Shape shape{.stage = 2, .layers = 3};
  auto steps = zero_steps(shape);
  for (Program& step : steps)
    for (int g = 0; g < 5; ++g) step.values.at(program::gradient(g)).slot = step.values.at(program::gradient(4)).slot;
  EXPECT_EQ(finding(steps, shape), "");  // one buffer serves all, one after the other
  for (Program& step : steps)
    for (int g = 0; g < 5; ++g)
      step.values.at(program::gradient(g, program::kWhole.shard_on(program::weight_shard_axes(step).at(g)))).slot =
          step.values.at(program::gradient(4)).slot;
  EXPECT_NE(finding(steps, shape), "");
}

TEST(Zero3, WritesTheGoldenStep_WithTwoGroupsKeptWhole) {
  testing_support::expect_golden(
      "tests/strategies/golden/zero3_keep_whole2_dp2_mb2.txt",
      to_text(zero_steps({.stage = 3, .micro_batches = 2, .layers = 2, .keep_whole = 2})[0]));
}

TEST(Zero, WritesTheGoldenSteps) {
  for (const int stage : {1, 2, 3}) {
    const Shape shape{.stage = stage, .micro_batches = stage == 2 ? 2 : 1, .layers = 1, .tied = stage == 2};
    testing_support::expect_golden("tests/strategies/golden/zero" + std::to_string(stage) + "_dp2.txt",
                                   to_text(zero_steps(shape)[0]));
  }
}

}  // namespace
}  // namespace herd::strategies
