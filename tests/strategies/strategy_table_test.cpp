#include "herd/strategies/strategy_table.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/techniques.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "herd/base/error.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/support/sample.h"

namespace herd::strategies {
namespace {

spec::RunFile two_layers(int64_t batch, int64_t micro_batch, bool tied) {
  spec::RunFile run;
  run.model = {.layers = 2, .width = 8, .heads = 2, .context = 4, .vocab = 16, .tie_embeddings = tied};
  run.train.batch = batch;
  run.train.micro_batch = micro_batch;
  run.strategy.bucket = 4096;
  return run;
}

TEST(Strategies, MakeStepsThatProve_ForManyLayouts) {
  int index = 0;
  for (const bool tied : {false, true}) {
    for (const int world : {1, 2, 3, 4, 8, 9, 16}) {
      for (const int64_t micro_batches : {1, 2, 5}) {
        for (const int64_t bucket : {1, 4096, 1 << 30}) {
          if (index++ % one_in(1, 23) != 0) continue;
          spec::RunFile run = two_layers(world * micro_batches, 1, tied);
          run.strategy.bucket = bucket;
          const auto steps = compile_and_verify(run, spec::model_table(run, 1), trainable_layout(run, world));
          ASSERT_EQ(static_cast<int>(steps.size()), world);
          EXPECT_EQ(steps[0], compile_step(run, spec::model_table(run, 1), trainable_layout(run, world), 0));
          EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
        }
      }
    }
  }
}

TEST(Strategies, AskForNoNorm_WhereNobodyClipsOrStopsByIt) {
  int index = 0;
  for (const int64_t pp : {1, 2}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const char* offload : {"none", "states"}) {
        if (++index % one_in(1, 3) != 0) continue;
        spec::RunFile run = two_layers(8, 1, true);
        run.mesh.pp = pp;
        run.strategy.zero = zero;
        run.strategy.offload = offload;
        const auto norms = [&] {
          const auto steps = compile_and_verify(run, spec::model_table(run, 1), trainable_layout(run, 4));
          return std::count_if(steps[0].ops.begin(), steps[0].ops.end(), [](const program::Op& op) {
            return op.kind == program::OpKind::kNorm || op.kind == program::OpKind::kClip;
          });
        };
        run.optimizer.clip = 0;
        EXPECT_GT(norms(), 0) << "health.check_finite";
        run.health.check_finite = false;
        EXPECT_EQ(norms(), 0);
        run.strategy.precision = "fp16";
        EXPECT_GT(norms(), 0) << "a step that overflows is skipped";
      }
    }
  }
}

TEST(Strategies, RefuseAStepThatDoesNotFitTheBudget_WithTheTable) {
  spec::RunFile run = two_layers(2, 1, true);
  run.memory.device_budget = 1000;
  try {
    compile_and_verify(run, spec::model_table(run, 1), trainable_layout(run, 2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOverBudget);
    EXPECT_THAT(error.message(), testing::HasSubstr("but memory.device_budget = 1000 B"));
    EXPECT_THAT(error.message(), testing::HasSubstr("\n  states "));
  }
}

std::string refusal(const spec::RunFile& run, int ranks) {
  try {
    programs_of_run(run, spec::model_table(run, 1), trainable_layout(run, ranks), {ranks - 1});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOverBudget);
    return error.message();
  }
  return "";
}

TEST(Strategies, CompareEveryWorldWithTheBudget_AlsoOnesTooLargeToProve) {
  for (const int ranks : {2, kMaxProvedRanks, kMaxProvedRanks + 1, 64}) {
    spec::RunFile run = two_layers(ranks, 1, true);
    run.memory.device_budget = 1000;
    EXPECT_THAT(refusal(run, ranks), testing::HasSubstr("memory.device_budget = 1000 B")) << ranks;
    run.memory = {.device_budget = 1 << 30, .host_budget = 1 << 30};
    EXPECT_EQ(refusal(run, ranks), "") << ranks;
  }
}

// What is named is enough, and a KiB less is not. States of one rank can go to files; buffers for them can't.
TEST(Strategies, CompareWhatTheHostHoldsWithItsBudget) {
  for (const auto& [offload, fix] : {std::pair("states", "fix: strategy.offload = \"nvme\", or "),
                                     {"window", "fix: strategy.offload = \"nvme\", or "},
                                     {"nvme", "fix: more ranks with strategy.zero, or "}}) {
    spec::RunFile run = two_layers(4, 1, true);
    run.strategy.offload = offload;
    run.memory.host_budget = 2048;
    const std::string message = refusal(run, 2), key = "memory.host_budget = \"";
    EXPECT_THAT(message, testing::HasSubstr("but memory.host_budget = 2 KiB\n")) << offload;
    EXPECT_THAT(message, testing::HasSubstr(fix)) << offload;
    const size_t at = message.find(key);
    ASSERT_NE(at, std::string::npos) << message;
    const int64_t enough = 1024 * std::stoll(message.substr(at + key.size()));
    run.memory.host_budget = enough;
    EXPECT_EQ(refusal(run, 2), "") << offload;
    run.memory.host_budget = enough - 1024;
    EXPECT_NE(refusal(run, 2), "") << offload;
  }
}

TEST(Strategies, TabulateAllThatDoesNotFit_TheScratchOfAnOpToo) {
  spec::RunFile run = two_layers(2, 1, true);
  run.memory.device_budget = 1000;
  EXPECT_THAT(refusal(run, 2), testing::HasSubstr("\n  scratch of the op "));
}

TEST(Strategies, StartAStepOfManyMicroBatchesWithinSeconds) {
  spec::RunFile run = two_layers(2000, 1, true);
  run.memory = {.device_budget = 1 << 30, .host_budget = 1 << 30};
  const std::clock_t begin = std::clock();  // of this process, whatever else the machine does
  const auto steps = programs_of_run(run, spec::model_table(run, 1), trainable_layout(run, 1), {0});
  EXPECT_GT(steps[0].ops.size(), 20000u);
  EXPECT_FALSE(proves_run_itself(steps[0], trainable_layout(run, 1)));
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 60);  // 20 under ASan on a slow machine; square takes minutes
}

TEST(Strategies, WriteTheGoldenStep) {
  const spec::RunFile run = two_layers(4, 1, true);
  testing_support::expect_golden("tests/strategies/golden/data_parallel_dp2_mb2_tied.txt",
                                 to_text(compile_step(run, spec::model_table(run, 1), trainable_layout(run, 2), 0)));
}

}  // namespace
}  // namespace herd::strategies
