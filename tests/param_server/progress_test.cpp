#include "herd/param_server/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace herd {
namespace {

using param_server::ProgressTable;

TEST(Progress, CountsEachStepOnceForEachWorker) {
  ProgressTable table(2);
  table.report(1, {.steps = 1, .sum = 6, .count = 2, .staleness = 1});
  table.report(1, {.steps = 2, .sum = 4, .count = 2, .staleness = 0});
  JobProgress job = table.report(0, {.steps = 1, .sum = 10, .count = 1});
  EXPECT_EQ(job.sum, 20);
  EXPECT_EQ(job.count, 5);
  EXPECT_EQ(job.staleness, 1);
  EXPECT_EQ(job.slowest, 1);
  job = table.report(0, {.steps = 1, .sum = 10, .count = 1});  // it waits for somebody, and asks again
  EXPECT_EQ(job.sum, 0);
  EXPECT_EQ(job.count, 0);
  EXPECT_EQ(job.staleness, 0);
  EXPECT_EQ(table.report(1, {.steps = 3, .sum = 1, .count = 1}).sum, 10 + 1);
}

TEST(Progress, LeavesOutWorkersThatAreGone) {
  ProgressTable table(3);
  table.report(0, {.steps = 5});
  table.report(1, {.steps = 3});
  EXPECT_EQ(table.report(0, {.steps = 5}).slowest, 0) << "worker 2 has not reported";
  table.remove(2);
  EXPECT_EQ(table.report(0, {.steps = 5}).slowest, 3);
}

TEST(Progress, TellsOfMeetingsAndOfLostWorkers) {
  ProgressTable table(3);
  table.report(0, {.steps = 5, .meetings = 2});
  table.report(1, {.steps = 5, .meetings = 1});
  EXPECT_EQ(table.report(0, {.steps = 5, .meetings = 2}).meetings, 0) << "worker 2 has come to none";
  table.lose(2);
  table.lose(2);
  const JobProgress job = table.report(0, {.steps = 5, .meetings = 2});
  EXPECT_EQ(job.meetings, 1);
  EXPECT_EQ(job.num_lost, 1);
  EXPECT_EQ(job.last_lost, 2);
  table.remove(1);
  EXPECT_EQ(table.report(0, {.steps = 5, .meetings = 2}).meetings, 2);
  EXPECT_EQ(table.report(0, {.steps = 5, .meetings = 2}).num_lost, 1) << "worker 1 left in good order";
}

// Workers that stop at the step that they are told stop at the same one, whoever asks when, and whoever is ahead.
TEST(Progress, StopsAllWorkersAfterTheSameStep) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const int workers = 1 + trial % 5;
    ProgressTable table(workers);
    std::vector<int64_t> steps(static_cast<size_t>(workers), 0);
    std::vector<bool> stopped(steps.size(), false);
    const auto asks_at = static_cast<int64_t>(random() % 9);
    for (int turn = 0; turn < 10000 && std::ranges::count(stopped, false) > 0; ++turn) {
      const size_t worker = random() % steps.size();
      if (stopped[worker]) continue;
      ++steps[worker];
      const bool asks = worker == 0 && steps[worker] >= asks_at;
      const JobProgress job = table.report(static_cast<int>(worker), {.steps = steps[worker], .wants_stop = asks});
      ASSERT_GE(job.stop_after, steps[worker]) << "a worker is beyond the step";
      stopped[worker] = job.stop_after == steps[worker];
    }
    EXPECT_EQ(steps, std::vector<int64_t>(steps.size(), steps[0]));
    EXPECT_EQ(std::ranges::count(stopped, false), 0);
  }
}

}  // namespace
}  // namespace herd
