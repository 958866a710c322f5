#include "herd/train/calibrate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "herd/comm/inproc_world.h"
#include "herd/models/gpt.h"
#include "herd/optim/adamw.h"
#include "herd/spec/model_table.h"
#include "herd/strategies/table.h"
#include "herd/train/machine_pace.h"

namespace herd::train {
namespace {

using namespace std::chrono_literals;

using Pause = std::atomic<std::chrono::milliseconds>;

// A block that takes a while longer.
class Slowed final : public nn::Block {
 public:
  Slowed(std::shared_ptr<nn::Block> block, const Pause& pause)
      : Block(block->name(), block->groups()), block_(std::move(block)), pause_(pause) {}
  nn::Tuple forward(const nn::Tuple& x, const nn::Context& context) override {
    std::this_thread::sleep_for(pause_.load());
    return block_->forward(x, context);
  }

 private:
  std::shared_ptr<nn::Block> block_;
  const Pause& pause_;
};

TEST(Calibrate, MeasuresEveryOpOfEveryBlockAndThePaceLater_AndLeavesTheRunAsItWas) {
  for (const std::string recompute : {"none", "full"}) {
    spec::RunFile run;
    run.model = {.layers = 4, .width = 32, .heads = 2, .ffn = 128, .context = 16, .vocab = 300, .dropout = 0.1};
    run.train.batch = 4;
    run.strategy.recompute = recompute;
    const spec::Layout layout = spec::resolve(run, 2);
    std::mutex mutex;
    std::vector<program::Calibration> machines;
    std::vector<double> paces;
    run_inproc(2, [&](Communicator& comm) {
      models::Model model = models::make_model(run.model);
      Pause pause = 0ms;
      model.blocks[3] = std::make_shared<Slowed>(model.blocks[3], pause);
      const optim::AdamW adamw({});
      const program::Program step =
          strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, comm.rank());
      const runtime::AxisGroups groups(comm, step);
      runtime::FlatParameters parameters(model.groups, step, comm, {at::kFloat, at::kFloat}, 1);
      runtime::WholeWeights whole(parameters, groups, step);
      const at::Tensor weights = parameters.weights().clone();
      BlockPasses passes(run, layout, model.blocks, parameters, whole, comm);
      const auto machine = calibrate(run, layout, passes, parameters, adamw, comm, 2);
      const MachinePace never(passes, 0, 1e3), not_predicted(passes, 1, 0);
      EXPECT_FALSE(never.due(10, true) || not_predicted.due(10, true));
      MachinePace pace(passes, 4, 1e3);
      EXPECT_TRUE(pace.due(8, false) && pace.due(9, true) && !pace.due(9, false));
      const MachinePace seldom(passes, spec::kAuto, 1.001 * passes.pass_us());  // a look is as long as a step
      EXPECT_TRUE(seldom.due(100, false) && !seldom.due(99, false));
      for (const int early : {1, 2, 4, 8, 16, 32, 64}) EXPECT_TRUE(seldom.due(early, false)) << early;
      for (const int between : {3, 63, 65, 128}) EXPECT_FALSE(seldom.due(between, false)) << between;
      EXPECT_GE(passes.slowest(), 1);
      pause = 30ms;
      EXPECT_GT(passes.pace(), 3) << "a pass of " << passes.pass_us() << " us that takes 30 ms longer";
      pause = 0ms;
      EXPECT_FALSE(pace.looked());
      const double looks[] = {pace.look(), pace.look()};
      EXPECT_GT(looks[0], 0);
      EXPECT_NEAR(pace.overall(), (looks[0] + looks[1]) / 2, 1e-12);
      EXPECT_EQ(pace.recent(), pace.overall());
      EXPECT_TRUE(parameters.weights().equal(weights));
      for (int k = 0; k < parameters.num_states(); ++k)
        EXPECT_EQ(parameters.state(k).count_nonzero().item<int64_t>(), 0);
      const std::lock_guard lock(mutex);
      machines.push_back(machine);
      paces.push_back(pace.overall());
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
    EXPECT_EQ(paces[0], paces[1]);
    EXPECT_EQ(machines[0].reduce_us_per_byte, machines[1].reduce_us_per_byte);
  }
}

TEST(BlockPasses, PaceIsThatOfTheSlowestRank_ThenAndNow) {
  spec::RunFile run;
  run.model = {.layers = 2, .width = 32, .heads = 2, .ffn = 128, .context = 16, .vocab = 300};
  run.train.batch = 4;
  const spec::Layout layout = spec::resolve(run, 2);
  run_inproc(2, [&](Communicator& comm) {
    models::Model model = models::make_model(run.model);
    Pause pause = comm.rank() == 0 ? 400ms : 10ms;
    model.blocks[1] = std::make_shared<Slowed>(model.blocks[1], pause);
    const program::Program step =
        strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, comm.rank());
    const runtime::AxisGroups groups(comm, step);
    runtime::FlatParameters parameters(model.groups, step, comm, {}, 1);
    runtime::WholeWeights whole(parameters, groups, step);
    BlockPasses passes(run, layout, model.blocks, parameters, whole, comm);
    passes.run();
    passes.figures();
    EXPECT_GE(passes.pass_us(), 400e3);
    EXPECT_GT(passes.slowest(), 1.5);
    pause = comm.rank() == 0 ? 10ms : 400ms;  // the other one now, and ranks that meet take as long
    EXPECT_NEAR(passes.pace(), 1, 0.3);
    pause = 100ms;
    EXPECT_LT(passes.pace(), 0.5);
  });
}

}  // namespace
}  // namespace herd::train
