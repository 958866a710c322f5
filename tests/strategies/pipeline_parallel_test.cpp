// Pipelines as rewrites: which blocks a stage has, in which order it runs, that its step proves with everything else,
// and what it holds and sends.
#include "herd/strategies/pipeline_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/spec/pipeline.h"
#include "herd/spec/stage_cut.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using testing::ElementsAre;

spec::RunFile pipeline_run(int stages, int64_t micro_batches, const std::string& order = "1f1b", int dp = 1,
                           bool tied = true, int64_t layers = 4) {
  spec::RunFile run = small_run(layers, "none", dp * micro_batches, tied);
  run.mesh.pp = stages;
  run.strategy.pipeline = order;
  run.strategy.bucket = 4096;
  return run;
}

spec::ModelTable chain(const std::vector<double>& flops) {
  spec::ModelTable model;
  for (const double of_block : flops) {
    model.blocks.emplace_back();
    model.blocks.back().forward.matmul_flops = of_block;
  }
  return model;
}

TEST(StageCut, MakesTheSlowestStageAsFastAsCanBe_ThenTheOthersAlike) {
  EXPECT_THAT(spec::stage_of_blocks(chain({0, 1, 1, 1, 1, 0}), 2), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(spec::stage_of_blocks(chain({0, 1, 1, 1, 1, 2}), 2), ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(spec::stage_of_blocks(chain({0, 2, 2, 2, 2, 2, 1}), 3), ElementsAre(0, 0, 0, 1, 1, 2, 2));
  EXPECT_THAT(spec::stage_of_blocks(chain({0, 1, 9, 1}), 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(spec::stage_of_blocks(chain({0, 0, 0}), 2), ElementsAre(0, 1, 1));
  EXPECT_THAT(spec::stage_of_blocks(chain({3, 1}), 1), ElementsAre(0, 0));
  EXPECT_ANY_THROW(spec::stage_of_blocks(chain({3, 1}), 3));
  // Where the first and the last of four stages share a rank, the other rank takes more of what they have least of.
  const std::vector<int> folded = {0, 1, 1, 0};
  EXPECT_THAT(spec::stage_of_blocks(chain({0, 1, 1, 1, 1, 1, 1, 4}), folded), ElementsAre(0, 0, 1, 1, 1, 2, 2, 3));
  EXPECT_THAT(spec::stage_of_blocks(chain({1, 1, 1, 9}), folded), ElementsAre(0, 1, 2, 3));  // none is left empty
}

TEST(PipelineParallel, Proves_WithEveryOrderStageAndTechnique) {
  int index = 0;
  for (const char* order : {"1f1b", "gpipe", "zero_bubble_h1", "interleaved", "zero_bubble_v"}) {
    for (const int stages : {2, 3, 4, 6}) {
      for (const int64_t micro_batches : {1, 2, 3, 7}) {
        for (const int dp : {1, 2, 4}) {
          for (const int zero : {0, 1, 2, 3}) {
            for (const char* recompute : {"none", "full", "every:2"}) {
              for (const bool tied : {false, true}) {
                if (dp * stages > 16 || (dp == 1 && zero > 0)) continue;
                if (++index % one_in(19, 1201) != 0) continue;
                const bool several = std::string(order) == "interleaved" || std::string(order) == "zero_bubble_v";
                spec::RunFile run = pipeline_run(stages, micro_batches, order, dp, tied, several ? 3 * stages - 2 : 4);
                if (std::string(order) == "interleaved") run.strategy.stages_per_rank = 2 + index % 2;
                run.strategy.recompute = recompute;
                run.strategy.zero = zero;
                run.strategy.keep_whole = zero == 3 ? index % 3 : 0;
                if (dp == 4) run.mesh.fsdp = 2;
                const auto steps = steps_of(run, dp * stages);
                EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              }
            }
          }
        }
      }
    }
  }
}

TEST(PipelineParallel, ProvesWhereWholeStagesAreFrozen) {
  int index = 0;
  for (const char* frozen : {"w*.weight h.0.* h.1.*", "h.2.* h.3.*", "*.bias"}) {
    for (const bool tied : {false, true}) {
      for (const int stages : {2, 3, 6}) {
        if (++index % one_in(1, 5) != 0) continue;
        spec::RunFile run = pipeline_run(stages, 3, "1f1b", 2, tied);
        run.model.frozen = frozen;
        run.strategy.zero = stages == 3 ? 3 : 0;
        steps_of(run, 2 * stages);
      }
    }
  }
}

TEST(PipelineParallel, HoldsItsOwnBlocksAndTheirGroups_OnceEachButForTheTiedOne) {
  const spec::RunFile run = pipeline_run(3, 2);
  const auto model = spec::model_table(run, 1);
  std::map<int, int> holders;
  int64_t bytes = 0;
  for (const Program& step : steps_of(run, 3)) {
    for (const auto& [value, info] : step.values) {
      if (value.kind != ValueKind::kWeight) continue;
      ++holders[value.index];
      bytes += info.bytes;
    }
  }
  int64_t whole = 4 * model.parameters();
  for (const auto& [group, times] : holders) {
    const bool tied = model.groups[static_cast<size_t>(group)].name == "wte";
    EXPECT_EQ(times, tied ? 2 : 1) << model.groups[static_cast<size_t>(group)].name;
    if (tied) whole += 4 * model.group_elements(group);
  }
  EXPECT_EQ(bytes, whole);
}

// Micro-batches that wait for their backward, by the graphs that are held at once of a block.
int in_flight(const Program& step) {
  int now = 0, most = 0, block = -1;
  for (const Op& op : step.ops) {
    if (block < 0 && op.kind == OpKind::kForward) block = op.block;
    if (op.kind == OpKind::kForward && op.block == block) most = std::max(most, ++now);
    if (op.kind == OpKind::kBackward && op.block == block) --now;
  }
  return most;
}

TEST(PipelineParallel, HoldsTheMicroBatchesThatTheEquationsState) {
  for (const char* order : {"1f1b", "gpipe", "zero_bubble_h1"}) {
    for (const int64_t micro_batches : {1, 3, 8}) {
      const auto steps = steps_of(pipeline_run(4, micro_batches, order), 4);
      for (int stage = 0; stage < 3; ++stage) {  // the last one's blocks may be the loss alone
        EXPECT_EQ(in_flight(steps[static_cast<size_t>(stage)]),
                  spec::micro_batches_in_flight(spec::parse_pipeline(order), 4, static_cast<int>(micro_batches), stage))
            << order << " stage " << stage;
      }
    }
  }
}

// Of a stage s, s micro-batches wait for the second half of their backward, and one is between the halves.
TEST(PipelineParallel, LeavesGradientsOfWeightsForLater_AsManyMicroBatchesAsStagesCameBefore) {
  const auto steps = steps_of(pipeline_run(4, 8, "zero_bubble_h1"), 4);
  for (int stage = 0; stage < 3; ++stage) {
    int now = 0, most = 0, block = -1;
    for (const Op& op : steps[static_cast<size_t>(stage)].ops) {
      if (op.kind == OpKind::kBackward && op.writes.back().kind == ValueKind::kPending) {
        if (block < 0) block = op.block;
        if (op.block == block) most = std::max(most, ++now);
      }
      if (op.kind == OpKind::kBackwardWeight && op.block == block) --now;
    }
    EXPECT_EQ(most, stage + 1);
    EXPECT_EQ(now, 0);
  }
}

TEST(PipelineParallel, ReceivesWaitForOneOfAtMostTwoPlaces_HoweverManyMicroBatches) {
  for (const Program& step : steps_of(pipeline_run(3, 7), 3)) {
    std::map<ValueKind, std::set<int>> slots;
    for (const Op& op : step.ops) {
      if (op.kind != OpKind::kReceive) continue;
      const int slot = step.values.at(op.writes[0]).slot;
      EXPECT_GE(slot, 0) << describe(step, op);
      slots[op.writes[0].kind].insert(slot);
    }
    for (const auto& [kind, places] : slots) EXPECT_LE(places.size(), 2u) << kind_name(kind);
    EXPECT_FALSE(slots.empty());
  }
}

// What may wait to be sent is over when what answers it has come, so the rest of the micro-batches add nothing.
TEST(PipelineParallel, IsBoundByTheSameBytes_HoweverManyMicroBatches) {
  int index = 0;
  for (const char* order : {"1f1b", "zero_bubble_h1", "interleaved", "zero_bubble_v"}) {
    if (index++ % one_in(1, 4) != 0) continue;
    const auto bounds = [&](int64_t micro_batches) {
      spec::RunFile run = pipeline_run(4, micro_batches, order, 1, true, 10);
      if (std::string(order) == "interleaved") run.strategy.stages_per_rank = 2;
      const std::vector<Program> steps = steps_of(run, 4);
      std::vector<int64_t> bytes;
      for (const Program& step : steps) bytes.push_back(peak_bound(step, program::Tier::kDevice, steps).bytes);
      return bytes;
    };
    EXPECT_EQ(bounds(16), bounds(48)) << order;
  }
}

TEST(PipelineParallel, WritesTheGoldenSteps) {
  spec::RunFile run = pipeline_run(2, 3, "1f1b", 2, true, 2);
  run.strategy.zero = 1;
  const auto steps = steps_of(run, 4);
  testing_support::expect_golden("tests/strategies/golden/pipeline_1f1b_pp2_dp2_zero1_stage0.txt", to_text(steps[0]));
  testing_support::expect_golden("tests/strategies/golden/pipeline_1f1b_pp2_dp2_zero1_stage1.txt", to_text(steps[2]));
}

}  // namespace
}  // namespace herd::strategies
