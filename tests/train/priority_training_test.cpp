// Runs whose gradients come by priority train as those first come, first served: the same bits, also while updates of a
// step run beside the next one.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "herd/strategies/priority.h"
#include "random_run.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

Trained trained_by(const std::string& schedule, spec::RunFile run, int ranks, int steps) {
  run.strategy.schedule = schedule;
  return train_in_threads(run, ranks, steps);
}

spec::RunFile without_norm() {
  spec::RunFile run = tiny_run("clip = 0\n[health]\ncheck_finite = false\n");
  run.strategy.bucket = 4096;
  return run;
}

// Sums of two terms have one order. In-process ranks add in the order of ranks.
TEST(PriorityTraining, HasTheBitsOfFifo_WhateverPartitionAndCredit) {
  for (const int ranks : {2, 3}) {
    spec::RunFile run = without_norm();
    const Trained fifo = trained_by("fifo", run, ranks, 6);
    EXPECT_LT(fifo.losses.back(), fifo.losses.front());
    for (const int64_t partition_bytes : {100, 1 << 20}) {
      for (const int64_t credit : {0, 2}) {
        run.strategy.partition_bytes = partition_bytes, run.strategy.credit = credit;
        const Trained priority = trained_by("priority", run, ranks, 6);
        EXPECT_EQ(priority.losses, fifo.losses) << ranks << " ranks, " << partition_bytes << " bytes, " << credit;
        EXPECT_EQ(priority.validation, fifo.validation);
      }
    }
  }
}

// Servers update each partition by itself, in the order of ranks.
TEST(PriorityTraining, HasTheBitsOfFifo_AtParameterServers) {
  for (const int ranks : {2, 3}) {
    for (const std::string kind : {"adamw", "sgd"}) {
      spec::RunFile run = without_norm();
      run.strategy.sync = "server", run.strategy.servers = ranks - 1;
      run.optimizer.kind = kind, run.optimizer.momentum = 0.9, run.optimizer.weight_decay = 0.1;
      const Trained fifo = trained_by("fifo", run, ranks, 6);
      for (const int64_t partition_bytes : {100, 5000}) {
        if (kind == "sgd" && partition_bytes == 100) continue;
        run.strategy.partition_bytes = partition_bytes, run.strategy.credit = partition_bytes / 1000;
        const Trained priority = trained_by("priority", run, ranks, 6);
        EXPECT_EQ(priority.losses, fifo.losses) << ranks << " ranks, " << partition_bytes << " bytes";
        EXPECT_EQ(priority.validation, fifo.validation);
      }
    }
  }
}

// Drawn as random runs are, with two data ranks, beside pipelines, tensor parallel, offload and 16 bits.
TEST(PriorityTraining, HasTheBitsOfFifo_InRandomLayouts) {
  int by_priority = 0, without_barrier = 0;
  const uint64_t stride = one_in(29, 41);
  for (uint64_t seed = 9000; seed < 9240; seed += 2) {
    if (seed / 2 % stride != 0) continue;
    Combination c{.recompute = seed % 3 == 0 ? "full" : "none",
                  .precision = seed % 4 == 0 ? "bf16" : "fp32",
                  .ranks = 2,
                  .micro_batches = static_cast<int64_t>(1 + seed % 3),
                  .seed = seed};
    if (seed % 5 < 2) c.pp = 2, c.ranks = 4, c.order = seed % 4 == 0 ? "zero_bubble_h1" : "1f1b";
    if (seed % 5 == 2) c.tp = 2, c.ranks = 4;
    if (seed % 5 == 3) c.offload = seed % 4 == 0 ? "states" : "window";
    spec::RunFile run = drawn(c);
    run.strategy.compression = "none", run.strategy.sync = "all_reduce";
    if (seed % 4 == 2) run.optimizer.clip = 0, run.health.check_finite = false;
    draw_schedule(c, run);
    ++by_priority;
    without_barrier += strategies::needs_norm(run, strategies::trainable_layout(run, c.ranks)) ? 0 : 1;
    EXPECT_EQ(trained_by("priority", run, c.ranks, 4).losses, trained_by("fifo", run, c.ranks, 4).losses)
        << text(c, run);
  }
  EXPECT_GT(by_priority, 2);
  EXPECT_GT(without_barrier, 1);
}

TEST(PriorityTraining, SendsTheBytesOfFifo) {
  spec::RunFile run = without_norm();
  run.strategy.partition_bytes = 512, run.strategy.credit = 1;
  EXPECT_EQ(trained_by("priority", run, 2, 3).sent, trained_by("fifo", run, 2, 3).sent);
}

}  // namespace
}  // namespace herd::train
