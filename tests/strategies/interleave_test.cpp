// Micro-batches that take turns: steps prove with everything else, what one sends another's compute hides, and what is
// summed stays the same.
#include "herd/strategies/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;

spec::RunFile run_in_turns(int count, int64_t micro_batches, bool sequence = false, int dp = 1) {
  spec::RunFile run = small_run(3, "none", dp * micro_batches, true);
  run.mesh.tp = 2;
  run.strategy.sequence_parallel = sequence;
  run.strategy.bucket = 4096;
  run.strategy.interleave_micro_batches = count;
  return run;
}

TEST(Interleave, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int count : {2, 3, 4}) {
    for (const bool sequence : {true, false}) {
      for (const int dp : {1, 2, 4}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const int64_t micro_batches : {1, 3, 5}) {
            for (const char* recompute : {"none", "full", "every:2"}) {
              for (const char* offload : {"none", "states"}) {
                if (dp == 1 && zero > 0) continue;
                if (++index % one_in(17, 211) != 0) continue;
                spec::RunFile run = run_in_turns(count, micro_batches, sequence, dp);
                run.strategy.recompute = recompute;
                run.strategy.zero = zero;
                run.strategy.offload = offload;
                run.strategy.keep_whole = zero == 3 ? index % 3 : 0;
                if (dp == 4) run.mesh.fsdp = 2;
                const auto steps = steps_of(run, 2 * dp);
                EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              }
            }
          }
        }
      }
    }
  }
}

// Of the sums that a rank has to wait for, those behind which another micro-batch computes.
double hidden(const Program& step, int* sums = nullptr) {
  int all = 0, behind = 0;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (step.ops[i].lane != Lane::kActivations || step.ops[i].reads.empty()) continue;
    ++all;
    const int m = step.ops[i].reads[0].micro_batch;
    for (size_t next = i + 1; next < step.ops.size(); ++next) {
      const Op& op = step.ops[next];
      if (op.kind != OpKind::kForward && op.kind != OpKind::kBackward && op.kind != OpKind::kLoss) continue;
      if (op.micro_batch == m) break;
      ++behind;
      break;
    }
  }
  if (sums != nullptr) *sums = all;
  return 1.0 * behind / all;
}

TEST(Interleave, HidesTheSumsOfOneMicroBatchBehindAnother) {
  int apart = 0, together = 0;
  EXPECT_EQ(hidden(steps_of(run_in_turns(1, 4), 2)[0], &apart), 0);
  EXPECT_GT(hidden(steps_of(run_in_turns(2, 4), 2)[0], &together), 0.9);
  EXPECT_EQ(apart, together);
  EXPECT_GT(hidden(steps_of(run_in_turns(3, 6, true), 2)[0]), 0.8) << "with gathers too";
}

// Rows of one micro-batch go to their experts, and come back, while another computes.
TEST(Interleave, HidesTheExchangesOfExperts) {
  const auto step_in_turns = [](int count) {
    spec::RunFile run = small_run(3, "none", 2 * 4);
    run.model.kind = "moe", run.model.norm = "rmsnorm", run.model.experts = 4, run.model.expert_ffn = 4;
    run.mesh.ep = 2;
    run.strategy.interleave_micro_batches = count;
    return steps_of(run, 2)[0];
  };
  EXPECT_EQ(hidden(step_in_turns(1)), 0);
  EXPECT_GE(hidden(step_in_turns(2)), 0.9);
}

TEST(Interleave, ChangesNothingButTheSequence) {
  const auto apart = steps_of(run_in_turns(1, 5), 2), together = steps_of(run_in_turns(2, 5), 2);
  const auto passes = [](const Program& step) {
    std::multiset<std::string> out;
    for (const Op& op : step.ops) {
      if (op.kind != OpKind::kRelease) out.insert(describe(step, op));
    }
    return out;
  };
  EXPECT_EQ(passes(apart[0]), passes(together[0]));
  EXPECT_NE(apart[0].ops, together[0].ops);
}

TEST(Interleave, IsRefusedInAPipeline) {
  const auto refused = [](const std::string& keys) { return spec::parse_run_text(keys, "test"); };
  EXPECT_ERROR(refused("[mesh]\ntp = 2\npp = 2\n[strategy]\ninterleave_micro_batches = 2\n"), Code::kBadConfig,
               "strategy.interleave_micro_batches = 2 needs mesh.tp > 1 or mesh.ep > 1", "mesh.pp = 2", "fix: ");
  EXPECT_ERROR(refused("[strategy]\ninterleave_micro_batches = 2\n"), Code::kBadConfig, "got mesh.tp = 1");
}

}  // namespace
}  // namespace herd::strategies
