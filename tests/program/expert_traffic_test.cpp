// What a rank sends to the ranks of other experts: bytes of the Program or counted ones, and the time of a timeline's
// spans that passes hide.
#include "herd/program/expert_traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/program/draw_program.h"
#include "herd/program/program_names.h"
#include "herd/program/simulate.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

spec::RunFile run_of_experts(int64_t ep) {
  return spec::parse_run_text(
      "[model]\nkind = \"moe\"\nlayers = 2\nwidth = 64\nheads = 2\ncontext = 32\nvocab = 256\nffn = 96\nexperts = 8\n"
      "[train]\nmicro_batch = 2\nbatch = " +
          std::to_string(ep == 2 ? 4 : 8) + "\n[mesh]\nep = " + std::to_string(ep) + "\n",
      "test");
}

std::vector<Program> programs_of(const spec::RunFile& run, int ranks) {
  return strategies::compile_and_verify(run, spec::program_table(run, 2), strategies::trainable_layout(run, ranks));
}

// Under a uniform router (P-1)/P of the rows leave their rank, each in two exchanges of forward and two of backward.
TEST(ExpertTraffic, PredictsTheRowsOfAUniformRouter_AndTheTimeOfTheirOps) {
  const spec::RunFile run = run_of_experts(4);
  const std::vector<Program> programs = programs_of(run, 4);
  const Calibration machine;
  const Simulation simulation = simulate(programs, spec::program_table(run, 2), machine, SharedMemoryCost(machine));
  std::vector<ExpertWay> ways;
  const int64_t rows = run.model.layers * 2 * run.model.context * run.model.top_k;  // of a rank in a step
  for (const ExpertTraffic& one : simulation.expert_traffic) {
    ways.push_back(one.way);
    EXPECT_GT(one.busy_us, 0) << way_name(one.way);
    EXPECT_LE(one.hidden_us, one.busy_us) << way_name(one.way);
    const int64_t sent = one.way == ExpertWay::kCounts ? run.model.layers * 3 * run.model.experts * 8
                                                       : rows * run.model.width * 4 * 3 / 4;
    EXPECT_EQ(one.bytes, sent) << way_name(one.way);
  }
  EXPECT_THAT(ways, ElementsAre(ExpertWay::kCounts, ExpertWay::kRows, ExpertWay::kOutputs, ExpertWay::kOutputGradients,
                                ExpertWay::kRowGradients));
  const spec::RunFile whole = run_of_experts(1);
  EXPECT_TRUE(expert_traffic(programs_of(whole, 4)[0], {}).empty());
}

// Spans as a run writes them: two exchanges of rows, of which passes hide three of seven units of time.
TEST(ExpertTraffic, CountsMeasuredBytes_AndTheTimeThatPassesHide) {
  const std::vector<Program> programs = programs_of(run_of_experts(2), 2);
  const Program& step = programs[1];
  sim::Timeline timeline{.title = "",
                         .rows = {{"rank 1", "compute"},
                                  {"rank 1", std::string(lane_name(Lane::kActivations))},
                                  {"rank 0", std::string(lane_name(Lane::kActivations))}},
                         .spans = {{0, "forward of block0 mb0", "forward", 2, 4}, {0, "forward", "forward", 12, 13}}};
  double at = 0;
  for (const Op& op : step.ops) {
    if (expert_way(op) != ExpertWay::kRows) continue;
    timeline.spans.push_back({1, describe(step, op), "all_to_all", at, at + 3.5});
    timeline.spans.push_back({2, describe(step, op), "all_to_all", 0, 20});
    at += 10;
  }
  timeline.spans.push_back({1, "all_to_all of x999.0 on cp", "all_to_all", 0, 20});
  const ExpertBytes counted = {10, 2048, 3072, 4096, 5120};
  const std::vector<ExpertTraffic> traffic = expert_traffic(step, timeline, &counted);
  ASSERT_EQ(traffic.size(), 5U);
  EXPECT_EQ(traffic[1].busy_us, 7);
  EXPECT_EQ(traffic[1].hidden_us, 2.5);
  EXPECT_EQ(traffic[2].busy_us, 0);
  for (size_t i = 0; i < traffic.size(); ++i) EXPECT_EQ(traffic[i].bytes, counted[i]);
  const std::string table = expert_traffic_table(traffic, traffic);
  for (const char* cell : {"rows to experts", "2 KiB", "7 us", "35.7 %", "gradients of rows back", "5 KiB", "14.0 KiB",
                           "predicted hidden", "measured bytes sent"})
    EXPECT_THAT(table, HasSubstr(cell));
  EXPECT_EQ(expert_traffic_table({}, {}), "");
}

}  // namespace
}  // namespace herd::program
