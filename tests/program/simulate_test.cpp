#include "herd/program/simulate.h"

#include <gtest/gtest.h>

#include "herd/program/draw_program.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

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
  out.steps = strategies::compile_and_verify(out.run, out.model, strategies::trainable_layout(out.run, ranks));
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

// Where a core is free a loader costs nothing, up to the time of a step.
TEST(Simulate, AStepWaitsForItsSamples_OrReadsThemBesideTheStepBefore) {
  const Example setup = gpt(2);
  Calibration machine{.cores = 4};
  const double without = on(setup, machine).step_us;
  const double us = without / static_cast<double>(setup.model.micro_batch * setup.steps[0].micro_batches);
  machine.read_us_per_sample = us / 2;
  EXPECT_NEAR(on(setup, machine).step_us, 1.5 * without, 0.02 * without);
  machine.reads_ahead = true;
  EXPECT_NEAR(on(setup, machine).step_us, without, 0.02 * without);
  machine.read_us_per_sample = 3 * us;
  EXPECT_NEAR(on(setup, machine).step_us, 3 * without, 0.02 * without);
  machine.read_us_per_sample = us / 2, machine.cores = 2;
  EXPECT_GT(on(setup, machine).step_us, 1.2 * on(setup, {.cores = 2}).step_us);
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

TEST(Simulate, SaysWhatEachOpHolds_AndItsLargestIsThePeak) {
  const Example setup = gpt(2);
  const Simulation simulation = on(setup, {});
  size_t computes = 0;
  for (const Op& op : setup.steps[0].ops) computes += op.lane == Lane::kCompute && op.kind != OpKind::kRelease ? 1 : 0;
  EXPECT_EQ(simulation.memory.size(), computes);
  const OpMemory* peak = peak_of(simulation.memory);
  ASSERT_NE(peak, nullptr);
  EXPECT_EQ(peak->op, simulation.device_peak.op);
  EXPECT_EQ(peak->bytes, by_use(simulation.device_peak.by_kind, simulation.device_peak.bytes));
  const Peak standing = in_order_peak(setup.steps[0], Tier::kDevice);
  for (const OpMemory& one : simulation.memory) {
    EXPECT_EQ(one.bytes[static_cast<size_t>(MemoryUse::kWeights)], standing.by_kind.at(ValueKind::kWeight));
    EXPECT_EQ(one.bytes[static_cast<size_t>(MemoryUse::kStates)], standing.by_kind.at(ValueKind::kState));
  }
}

TEST(MemoryUse, CountsWhatNoValueHoldsAsBuffers) {
  const BytesByUse bytes = by_use({{ValueKind::kWeight, 5}, {ValueKind::kGraph, 7}, {ValueKind::kTarget, 1}}, 20);
  EXPECT_EQ(bytes, (BytesByUse{5, 0, 0, 8, 7}));
  EXPECT_EQ(peak_of({}), nullptr);
}

TEST(MemoryPage, NamesTheOpAtThePeak_AndShowsBothTotals) {
  const std::vector<OpMemory> measured = {{0, "load", 0, 10, {8 << 20, 0, 0, 0, 0}},
                                          {1, "forward block0 mb0", 20, 40, {8 << 20, 0, 0, 3 << 20, 1 << 20}},
                                          {2, "loss block1 mb0", 40, 90, {8 << 20, 0, 0, 2 << 20, 0}}};
  std::vector<OpMemory> predicted = measured;
  predicted[1].bytes[3] = 1 << 20;
  const std::string figure = memory_figure(measured, predicted, 16 << 20);
  EXPECT_NE(figure.find("most: 12 MiB at forward block0 mb0"), std::string::npos);
  EXPECT_NE(figure.find("budget 16 MiB"), std::string::npos);
  EXPECT_NE(figure.find("predicted 10 MiB"), std::string::npos) << "under the pointer";
  const std::string tables = memory_table(predicted, measured) + op_memory_table(predicted, measured);
  EXPECT_NE(tables.find("120.0 %"), std::string::npos) << "12 of 10 MiB";
  EXPECT_NE(tables.find("300.0 %"), std::string::npos) << "3 of 1 MiB of activations";
  EXPECT_EQ(memory_figure({}, {}, 0), "");
  EXPECT_EQ(memory_table({}, {}) + op_memory_table({}, {}), "");
}

}  // namespace
}  // namespace herd::program::testing
