#include "herd/program/simulate.h"

#include <gtest/gtest.h>

#include "herd/program/draw.h"
#include "herd/program/memory_bound.h"
#include "herd/strategies/table.h"

namespace herd::program::testing {
namespace {

struct Example {
  spec::RunFile run;
  spec::ModelTable model;
  std::vector<Program> steps;
};

Example gpt(int ranks) {
  Example out;
  out.run.model = {.layers = 4, .width = 256, .heads = 4, .context = 128, .vocab = 4096};
  out.run.train.batch = 2 * ranks;
  out.model = spec::model_table(out.run, 2);
  out.steps = strategies::compile_and_verify(out.run, out.model, spec::resolve(out.run, ranks));
  return out;
}

Simulation on(const Example& setup, const Calibration& machine) {
  return simulate(setup.steps, setup.model, machine, SharedMemoryCost(machine));
}

TEST(Simulate, OneRankTakesTheSumOfItsOps) {
  const Example setup = gpt(1);
  Calibration machine{.core_bytes_per_us = 1e12, .host_bytes_per_us = 1e15, .op_overhead_us = 0};
  machine.attention_flops_per_us = machine.matmul_flops_per_us;
  EXPECT_NEAR(on(setup, machine).step_us, setup.model.flops() / machine.matmul_flops_per_us, 1);
}

TEST(Simulate, TakesWhatWasMeasured_InPlaceOfTheRates) {
  const Example setup = gpt(1);
  // A slow bus: what was measured has waited for it already.
  Calibration machine{.core_bytes_per_us = 1e12, .host_bytes_per_us = 1, .op_overhead_us = 0};
  const int last = static_cast<int>(setup.model.blocks.size()) - 1;
  for (int b = 0; b < last; ++b)
    machine.measured_us[{OpKind::kForward, b}] = 100, machine.measured_us[{OpKind::kBackward, b}] = 200;
  machine.measured_us[{OpKind::kLoss, last}] = 1000;
  machine.update_us_per_element = 1e-3;
  machine.norm_us_per_element = 1e-4;
  const double elements = static_cast<double>(setup.model.parameters());
  EXPECT_NEAR(on(setup, machine).step_us, 300.0 * last + 1000 + 1.1e-3 * elements, 1);
}

TEST(Simulate, RanksShareCores_SoTwoOnOneTakeTwiceAsLong) {
  const Example setup = gpt(2);
  const Calibration two_cores{.cores = 2}, one_core{.cores = 1};
  const double wide = on(setup, two_cores).step_us, narrow = on(setup, one_core).step_us;
  EXPECT_GT(narrow, 1.8 * wide);
  EXPECT_LT(narrow, 2.2 * wide);
}

TEST(Simulate, CommunicationCostsTime_SinceNoCoreIsIdle) {
  const Calibration machine{.cores = 2};
  const double alone = on(gpt(1), machine).step_us, together = on(gpt(2), machine).step_us;
  EXPECT_GT(together, alone);
  EXPECT_LT(together, 1.5 * alone);
}

TEST(Simulate, FindsThePeakThatTheOrderOfOpsGives) {
  const Example setup = gpt(2);
  const Simulation simulation = on(setup, {});
  EXPECT_EQ(simulation.device_peak.bytes, in_order_peak(setup.steps[0], Tier::kDevice).bytes);
  EXPECT_NE(program_page(setup.steps[0], simulation).find("<svg"), std::string::npos);
}

TEST(MemorySeries, ChangesAtOnce_AndHoldsEveryKindAtEveryPoint) {
  Simulation simulation;
  simulation.memory = {{0, {{ValueKind::kWeight, 100}}, 0},
                       {5, {{ValueKind::kWeight, 100}, {ValueKind::kGraph, 30}}, 7},
                       {9, {{ValueKind::kWeight, 100}}, 0}};
  simulation.device_peak.bytes = 137;
  const auto series = memory_series(simulation);
  using Points = std::vector<std::pair<double, double>>;
  ASSERT_EQ(series.size(), 3u);
  EXPECT_EQ(series[0].points, (Points{{0, 100}, {5, 100}, {5, 100}, {9, 100}, {9, 100}}));
  EXPECT_EQ(series[1].points, (Points{{0, 0}, {5, 0}, {5, 30}, {9, 30}, {9, 0}}));
  EXPECT_EQ(series[2].name, "scratch");
  EXPECT_EQ(series[2].points, (Points{{0, 0}, {5, 0}, {5, 7}, {9, 7}, {9, 0}}));
  EXPECT_TRUE(memory_series({}).empty());
}

}  // namespace
}  // namespace herd::program::testing
