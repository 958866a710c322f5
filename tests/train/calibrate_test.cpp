#include "herd/train/calibrate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/inproc_world.h"
#include "herd/models/decoder.h"
#include "herd/optim/adamw.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "herd/train/model_source.h"

namespace herd::train {
namespace {

BlockTimer::Example examples_of(const spec::RunFile& run) {
  return [&run](int64_t rows) { return family_source()->example(run, rows); };
}

using namespace std::chrono_literals;

// A block that takes a while longer.
class Slowed final : public nn::Block {
 public:
  Slowed(std::shared_ptr<nn::Block> block, std::chrono::milliseconds pause)
      : Block(block->name(), block->groups()), block_(std::move(block)), pause_(pause) {}
  nn::Tuple forward(const nn::Tuple& x, const nn::Context& context) override {
    std::this_thread::sleep_for(pause_);
    return block_->forward(x, context);
  }

 private:
  std::shared_ptr<nn::Block> block_;
  const std::chrono::milliseconds pause_;
};

// What a rank has of a run before its first step.
struct RankParts {
  models::Model model;
  program::Program step;
  runtime::AxisGroups groups;
  runtime::FlatParameters parameters;

  RankParts(const spec::RunFile& run, const spec::Layout& layout, Communicator& comm)
      : model(models::make_model(run.model, spec::model_table(run, layout.micro_batch), models::RankPlace{})),
        step(strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, comm.rank())),
        groups(comm, step),
        parameters(model.groups, step, comm, {at::kFloat, at::kFloat}, 1) {}
};

TEST(Calibrate, MeasuresEveryOpOfEveryBlock_AndLeavesTheRunAsItWas) {
  for (const char* keys : {"", "[strategy]\nrecompute = \"full\"", "[strategy]\nzero = 3\nrecompute = \"full\""}) {
    const spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 4\nwidth = 32\nheads = 2\nffn = 128\ncontext = 16\nvocab = 300\ndropout = 0.1\n"
        "[train]\nbatch = 4\n" +
            std::string(keys),
        "test");
    const spec::Layout layout = strategies::trainable_layout(run, 2);
    std::mutex mutex;
    std::vector<program::Calibration> machines;
    run_inproc(2, [&](Communicator& comm) {
      RankParts parts(run, layout, comm);
      const optim::AdamW adamw({});
      const at::Tensor weights = parts.parameters.weights().clone();
      BlockTimer passes(run, layout, parts.step, parts.model.blocks, parts.parameters, parts.groups, comm,
                        examples_of(run));
      const auto machine = calibrate(run, layout, passes, parts.parameters, adamw, comm, 2);
      if (run.strategy.zero < 3) {
        EXPECT_TRUE(parts.parameters.weights().equal(weights));
      }
      for (int k = 0; k < parts.parameters.num_states(); ++k)
        EXPECT_EQ(parts.parameters.state(k).count_nonzero().item<int64_t>(), 0);
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
}

TEST(Calibrate, MeasuresWithARankThatHasNoGradients) {
  const spec::RunFile run = spec::parse_run_text(
      "[model]\nlayers = 4\nwidth = 32\nheads = 2\ncontext = 16\nvocab = 300\ntie_embeddings = false\n"
      "frozen = \"h.2.* h.3.* ln_f.* head.weight\"\n[train]\nbatch = 4\n[mesh]\npp = 2\n",
      "test");
  const spec::Layout layout = strategies::trainable_layout(run, 2);
  run_inproc(2, [&](Communicator& comm) {
    RankParts parts(run, layout, comm);
    EXPECT_EQ(parts.parameters.gradients().numel() == 0, comm.rank() == 1);
    const optim::AdamW adamw({});
    BlockTimer passes(run, layout, parts.step, parts.model.blocks, parts.parameters, parts.groups, comm,
                      examples_of(run));
    const auto machine = calibrate(run, layout, passes, parts.parameters, adamw, comm, 2);
    EXPECT_GT(machine.norm_us_per_element, 0);
    EXPECT_GT(machine.update_us_per_element, 0);
  });
}

// Of few tokens, so that a step has little memory beside its weights, gradients and states.
TEST(Calibrate, TakesNoMoreMemoryThanAStep_AndLeavesEveryBitOfTheWeights) {
  DeviceMemory::install();
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 4\nwidth = 256\nheads = 2\ncontext = 8\nvocab = 300\n[train]\nbatch = 1\n[strategy]\n"
        "precision = \"" +
            std::string(precision) + "\"\n",
        "test");
    const spec::Layout layout = strategies::trainable_layout(run, 1);
    run_inproc(1, [&](Communicator& comm) {
      const int64_t base = DeviceMemory::live_bytes();
      RankParts parts(run, layout, comm);
      const optim::AdamW adamw({});
      std::vector<at::Tensor> before;
      const auto exact_weights = [&] {
        std::vector<at::Tensor> all;
        for (int g = 0; g < parts.parameters.num_groups(); ++g) {
          for (const at::Tensor& one :
               {parts.parameters.own_weights(g), parts.parameters.own_low_halves(g), parts.parameters.own_master(g)})
            if (one.defined()) all.push_back(one);
        }
        return all;
      };
      for (const at::Tensor& one : exact_weights()) before.push_back(one.clone());
      BlockTimer passes(run, layout, parts.step, parts.model.blocks, parts.parameters, parts.groups, comm,
                        examples_of(run));
      DeviceMemory::reset_peak();
      calibrate(run, layout, passes, parts.parameters, adamw, comm, 1);
      const int64_t bound = peak_bound(parts.step, program::Tier::kDevice).bytes;
      int64_t kept = 0;
      for (const at::Tensor& one : before) kept += static_cast<int64_t>(one.nbytes());
      EXPECT_LE(DeviceMemory::peak_bytes() - base - kept, bound + bound / 50) << precision;
      const auto after = exact_weights();
      for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << precision;
    });
  }
}

TEST(BlockTimer, SayHowMuchLongerTheSlowestRankTakes) {
  spec::RunFile run;
  run.model = {.layers = 2, .width = 32, .heads = 2, .ffn = 128, .context = 16, .vocab = 300};
  run.train.batch = 4;
  const spec::Layout layout = strategies::trainable_layout(run, 2);
  run_inproc(2, [&](Communicator& comm) {
    RankParts parts(run, layout, comm);
    parts.model.blocks[1] = std::make_shared<Slowed>(parts.model.blocks[1], comm.rank() == 0 ? 400ms : 10ms);
    BlockTimer passes(run, layout, parts.step, parts.model.blocks, parts.parameters, parts.groups, comm,
                      examples_of(run));
    passes.run();
    const auto figures = passes.block_times_us();
    double pass_us = 0;
    for (int block = 0; block < 3; ++block)
      for (const auto kind : {program::OpKind::kForward, program::OpKind::kBackward})
        pass_us += figures.at({kind, block});
    EXPECT_GE(pass_us, 205e3) << "the mean of both ranks";
    EXPECT_GT(passes.slowest_rank_ratio(figures), 1.5);
  });
}

}  // namespace
}  // namespace herd::train
