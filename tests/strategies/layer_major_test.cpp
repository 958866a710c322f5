// All micro-batches through a layer before the next: steps prove with everything else, run passes in the order that the
// name says, bring weights once for all micro-batches, and sum what they summed before.
#include "herd/strategies/layer_major.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;

constexpr const char* kLayerMajor = "layer_major";

spec::RunFile run_in_order(const std::string& order, int64_t micro_batches, int64_t layers = 3, int ranks = 1) {
  spec::RunFile run = small_run(layers, "none", ranks * micro_batches, false);
  run.strategy.order = order;
  run.strategy.bucket = 4096;
  return run;
}

TEST(LayerMajor, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int64_t micro_batches : {1, 2, 3}) {
    for (const auto& [tp, cp] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}}) {
      for (const int dp : {1, 2, 4}) {
        for (const int zero : {0, 1, 2, 3}) {
          for (const char* recompute : {"none", "full", "every:2"}) {
            for (const char* offload : {"none", "states", "window"}) {
              for (const char* precision : {"fp32", "bf16"}) {
                const std::string where = offload;
                if (dp * cp == 1 && zero > 0) continue;
                if (++index % one_in(53, 331) != 0) continue;
                spec::RunFile run = run_in_order(kLayerMajor, micro_batches, 3, dp);
                run.mesh.tp = tp, run.mesh.cp = cp;
                if (tp * cp == 4) run.strategy.context = "ring";  // two heads are too few to share twice
                if (dp == 4) run.mesh.fsdp = 2;
                run.strategy.zero = zero;
                run.strategy.recompute = recompute, run.strategy.offload = where, run.strategy.precision = precision;
                run.strategy.window = 1 + index % 3;
                run.strategy.keep_whole = zero == 3 ? index % 3 : 0;
                run.model.tie_embeddings = index % 2 == 0;
                if (index % 5 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
                if (index % 7 == 0) run.model.frozen = "h.1.*";
                const auto steps = steps_of(run, tp * cp * dp);
                EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              }
            }
          }
        }
      }
    }
  }
}

TEST(LayerMajor, IsReadByPeople) {
  spec::RunFile run = run_in_order(kLayerMajor, 2, 1);
  run.strategy.offload = "window";
  testing_support::expect_golden("tests/strategies/golden/layer_major.txt", to_text(steps_of(run, 1)[0]));
}

TEST(LayerMajor, RunsForwardInTheOrderOfLayers_AndBackwardInReverse) {
  for (const char* recompute : {"none", "full"}) {
    spec::RunFile run = run_in_order(kLayerMajor, 3);
    run.strategy.recompute = recompute;
    const Program step = steps_of(run, 1)[0];
    std::vector<std::pair<int, int>> passes, expected;  // block and micro-batch
    for (const Op& op : step.ops) {
      if (program::is_pass(op) && op.kind != OpKind::kRecompute) passes.emplace_back(op.block, op.micro_batch);
    }
    for (const int block : {0, 1, 2, 3, 4, 3, 2, 1, 0}) {
      for (int m = 0; m < 3; ++m) expected.emplace_back(block, m);
    }
    EXPECT_EQ(passes, expected) << recompute;
  }
}

// What fetches and gathers bring serves all micro-batches: there are as many as for one of them.
TEST(LayerMajor, BringsWeightsOnceForAllMicroBatches) {
  for (const char* recompute : {"none", "full", "every:2"}) {
    for (const bool window : {true, false}) {
      const auto brought = [&](const std::string& order, int64_t micro_batches) {
        spec::RunFile run = run_in_order(order, micro_batches, 4, 2);
        run.strategy.recompute = recompute;
        if (window) run.strategy.offload = "window";
        if (!window) run.strategy.zero = 3;
        const Program step = steps_of(run, 2)[0];
        return std::ranges::count_if(step.ops, [](const Op& op) {
          return op.kind == OpKind::kFetch || (op.kind == OpKind::kAllGather && op.lane == Lane::kGather);
        });
      };
      EXPECT_EQ(brought(kLayerMajor, 5), brought("micro_batch_major", 1)) << recompute;
      EXPECT_GT(brought("micro_batch_major", 5), 3 * brought(kLayerMajor, 5)) << recompute;
    }
  }
}

TEST(LayerMajor, ChangesNothingButTheSequence) {
  const auto ops = [](const std::string& order) {
    std::multiset<std::string> out;
    const Program step = steps_of(run_in_order(order, 4, 3, 2), 2)[0];
    for (const Op& op : step.ops) {
      if (op.kind != OpKind::kRelease) out.insert(describe(step, op));
    }
    return out;
  };
  EXPECT_EQ(ops(kLayerMajor), ops("micro_batch_major"));
}

// Over a link that takes longer for the weights of both passes than a micro-batch computes.
TEST(LayerMajor, HidesAWindowsCopiesBehindMicroBatches) {
  program::Calibration machine;
  machine.cores = 4;
  machine.op_overhead_us = 0;
  const auto step_us = [&](const std::string& order, double link) {
    machine.host_link_bytes_per_us = link;
    spec::RunFile run = run_in_order(order, 8, 12);
    run.model.context = 64;
    run.strategy.offload = "window";
    run.optimizer.clip = 0, run.health.check_finite = false;
    return simulate(steps_of(run, 1), spec::program_table(run, 1), machine, program::SharedMemoryCost(machine)).step_us;
  };
  const double compute_us = step_us("micro_batch_major", 1e9);
  const spec::RunFile run = run_in_order("micro_batch_major", 8, 12);
  const double bytes = 2.0 * 4 * static_cast<double>(spec::program_table(run, 1).parameters());
  const double link = bytes / (1.5 * compute_us / 8);
  EXPECT_GT(step_us("micro_batch_major", link), 1.4 * compute_us);
  EXPECT_LT(step_us(kLayerMajor, link), 1.2 * compute_us);
}

TEST(LayerMajor, IsRefusedInAPipeline_AndWhereMicroBatchesTakeTurns) {
  const auto refused = [](const std::string& keys) { return spec::parse_run_text(keys, "test"); };
  EXPECT_ERROR(refused("[mesh]\npp = 2\n[strategy]\norder = \"layer_major\"\n"), Code::kBadConfig,
               "strategy.order = \"layer_major\" needs mesh.pp = 1", "got mesh.pp = 2",
               "fix: strategy.order = \"micro_batch_major\"");
  EXPECT_ERROR(refused("[mesh]\ntp = 2\n[strategy]\norder = \"layer_major\"\ninterleave_micro_batches = 2\n"),
               Code::kBadConfig, "got strategy.interleave_micro_batches = 2",
               "fix: strategy.interleave_micro_batches = 1");
}

}  // namespace
}  // namespace herd::strategies
