// What moves between tiers in a step: bytes of the Program, and the time of a timeline's spans that passes hide.
#include "herd/program/tier_traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/program/draw_program.h"
#include "herd/program/simulate.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::program {
namespace {

using ::testing::HasSubstr;

Op copy_op(OpKind kind, Lane lane, const Value& from, const Value& to) {
  return {.kind = kind, .lane = lane, .reads = {from}, .writes = {to}};
}

// Two evictions to the host, which overlap by a unit of time, and one to a file; a pass hides parts of them.
TEST(TierTraffic, CountsBytesOfTheProgram_AndTheTimeThatPassesHide) {
  const auto value = [](int index, Tier tier) {
    return Value{.kind = ValueKind::kGradient, .index = index, .tier = tier};
  };
  Program step;
  step.rank = 3;
  for (const int index : {0, 1}) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) step.values[value(index, tier)] = {.bytes = 3000};
    step.ops.push_back(copy_op(OpKind::kEvict, Lane::kCopyOut, value(index, Tier::kDevice), value(index, Tier::kHost)));
  }
  step.ops.push_back(copy_op(OpKind::kEvict, Lane::kIo, value(0, Tier::kHost), value(0, Tier::kNvme)));
  const sim::Timeline timeline{
      .title = "",
      .rows = {{"rank 3", "compute"}, {"rank 3", "copy-out"}, {"rank 3", "io"}, {"rank 4", "compute"}},
      .spans = {{0, "forward of block0 mb0", "forward", 0, 3},
                {1, "evict g0", "evict", 1, 4},
                {1, "evict g1", "evict", 3, 7},
                {2, "evict g0", "evict", 8, 10},
                {2, "fetch s0", "fetch", 0, 5},  // which the step does not have
                {0, "step w0", "step", 9, 20},
                {3, "forward of block0 mb0", "forward", 0, 20}}};
  const std::vector<TierTraffic> traffic = tier_traffic(step, timeline);
  ASSERT_EQ(traffic.size(), 2u);
  EXPECT_EQ(traffic[0].way, "device to host");
  EXPECT_EQ(traffic[0].bytes, 6000);
  EXPECT_EQ(traffic[0].busy_us, 6);
  EXPECT_EQ(traffic[0].hidden_us, 2);
  EXPECT_EQ(traffic[1].way, "host to files");
  EXPECT_EQ(traffic[1].bytes, 3000);
  EXPECT_EQ(traffic[1].busy_us, 2);
  EXPECT_EQ(traffic[1].hidden_us, 1);
  const std::string table = traffic_table(traffic, {});
  for (const char* cell : {"device to host", "5.86 KiB", "6 us", "1.00", "33.3 %", "host to files", "1.50", "50.0 %"})
    EXPECT_THAT(table, HasSubstr(cell));
  EXPECT_EQ(traffic_table({}, {}), "");
}

// Weights, moments and gradients of a step whose states are in files: each passes once each way, and what the host and
// files hold while an op runs lies between what stays and what fits.
TEST(TierTraffic, OfAStepWithStatesInFilesIsThatOfItsEquation) {
  for (const std::string offload : {"none", "states", "nvme"}) {
    spec::RunFile run;
    run.model = {.layers = 4, .width = 64, .heads = 2, .context = 32, .vocab = 256};
    run.train.batch = 2;
    run.strategy.offload = offload;
    const spec::ModelTable model = spec::model_table(run, 2);
    const auto steps = strategies::compile_and_verify(run, model, strategies::trainable_layout(run, 1));
    const Calibration machine{.nvme_bytes_per_us = 1000};
    const Simulation simulation = simulate(steps, model, machine, SharedMemoryCost(machine));
    std::map<std::string_view, TierTraffic> by_way;
    for (const TierTraffic& one : simulation.traffic) by_way[one.way] = one;
    EXPECT_EQ(by_way.size(), offload == "none" ? 0u : offload == "states" ? 2u : 4u);
    for (const auto& [way, one] : by_way) {
      EXPECT_GT(one.busy_us, 0) << way;
      EXPECT_LE(one.hidden_us, one.busy_us) << way;
    }
    for (const char* way : {"device to host", "host to device"}) {
      if (offload != "none") {
        EXPECT_GE(by_way.at(way).bytes, 4 * model.parameters()) << offload;
        const auto blocks = static_cast<int64_t>(offload == "nvme" ? model.groups.size() : 0);  // of a file
        EXPECT_LE(by_way.at(way).bytes, 4 * model.parameters() + 4096 * blocks) << offload;
      }
    }
    if (offload == "nvme") {
      EXPECT_EQ(by_way.at("files to host").bytes, in_order_peak(steps[0], Tier::kNvme).bytes);
      EXPECT_EQ(by_way.at("host to files").bytes, in_order_peak(steps[0], Tier::kNvme).bytes);
      const double bytes = static_cast<double>(by_way.at("files to host").bytes);
      EXPECT_NEAR(bytes / by_way.at("files to host").busy_us, machine.nvme_bytes_per_us, 1);
    }
    int64_t most_host = 0;
    for (const OpMemory& one : simulation.memory) {
      most_host = std::max(most_host, one.host_bytes);
      EXPECT_EQ(one.file_bytes, in_order_peak(steps[0], Tier::kNvme).bytes);
    }
    EXPECT_LE(most_host, peak_bound(steps[0], Tier::kHost).bytes) << offload;
    if (offload == "states") {
      EXPECT_GE(most_host, 12 * model.parameters());
    }
    EXPECT_EQ(tier_figure(simulation.memory, simulation.traffic).empty(), offload == "none");
    const std::string page = program_page(steps[0], simulation);
    EXPECT_EQ(page.find("Bytes of each tier over a step") != page.npos, offload != "none");
    EXPECT_EQ(page.find("files to host") != page.npos, offload == "nvme");
  }
}

}  // namespace
}  // namespace herd::program
