#include "herd/train/calibrate.h"

#include <gtest/gtest.h>

#include <mutex>

#include "herd/comm/inproc_world.h"
#include "herd/models/gpt.h"
#include "herd/optim/adamw.h"
#include "herd/spec/model_table.h"
#include "herd/strategies/table.h"

namespace herd::train {
namespace {

TEST(Calibrate, MeasuresEveryOpOfEveryBlock_AndLeavesTheRunAsItWas) {
  spec::RunFile run;
  run.model = {.layers = 4, .width = 32, .heads = 2, .ffn = 128, .context = 16, .vocab = 300, .dropout = 0.1};
  run.train.batch = 4;
  const spec::Layout layout = spec::resolve(run, 2);
  std::mutex mutex;
  std::vector<program::Calibration> machines;
  run_inproc(2, [&](Communicator& comm) {
    const models::Model model = models::make_model(run.model);
    const optim::AdamW adamw({});
    const program::Program step =
        strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, comm.rank());
    const runtime::AxisGroups groups(comm, step);
    runtime::FlatParameters parameters(model.groups, step, comm, {at::kFloat, at::kFloat}, 1);
    runtime::WholeWeights whole(parameters, groups, step);
    const at::Tensor weights = parameters.weights().clone();
    const auto machine = calibrate(run, layout, model.blocks, parameters, whole, adamw, comm, 2);
    EXPECT_TRUE(parameters.weights().equal(weights));
    for (int k = 0; k < parameters.num_states(); ++k) EXPECT_EQ(parameters.state(k).count_nonzero().item<int64_t>(), 0);
    const std::lock_guard lock(mutex);
    machines.push_back(machine);
  });
  ASSERT_EQ(machines.size(), 2u);
  using program::OpKind;
  for (const auto& machine : machines) {
    for (int block = 0; block < 5; ++block) {
      EXPECT_GT(machine.measured_us.at({OpKind::kForward, block}), 0) << block;
      EXPECT_GT(machine.measured_us.at({OpKind::kBackward, block}), 0) << block;
    }
    EXPECT_GT(machine.measured_us.at({OpKind::kLoss, 5}), 0);
    EXPECT_GT(machine.update_us_per_element, 0);
    EXPECT_GT(machine.norm_us_per_element, 0);
    EXPECT_GT(machine.reduce_us_per_byte, 0);
    EXPECT_GT(machine.matmul_flops_per_us, 0);
  }
  EXPECT_EQ(machines[0].measured_us, machines[1].measured_us) << "all ranks predict the same";
  EXPECT_EQ(machines[0].reduce_us_per_byte, machines[1].reduce_us_per_byte);
}

}  // namespace
}  // namespace herd::train
