// A step of a real model, executed as a Program, against autograd over the whole chain.
#include "herd/runtime/model_bindings.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "herd/comm/inproc_world.h"
#include "herd/models/decoder.h"
#include "herd/nn/run_block.h"
#include "herd/runtime/executor.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/support/expect_error.h"

namespace herd::runtime {
namespace {

spec::RunFile tiny(bool tied) {
  return spec::parse_run_text(
      std::string("[model]\nlayers = 2\nwidth = 32\nheads = 2\ncontext = 8\nvocab = 64\n") +
          "tie_embeddings = " + (tied ? "true" : "false") +
          "\n[train]\nbatch = 4\nmicro_batch = 2\n[optimizer]\nclip = 0\n[data]\nkind = \"random\"\n",
      "test");
}

// Returns the sequences of the whole batch.
at::Tensor batch() { return (at::arange(4 * 9, at::kLong) * 37 % 64).view({4, 9}); }

struct Ran {
  std::vector<at::Tensor> gradients;  // by parameter group
  double loss_sum = 0;
  int64_t count = 0;
};

// One step of this rank on sequences [first, last), executed as a Program.
Ran run_step(const spec::RunFile& run, Communicator& comm, int64_t first, int64_t last) {
  const int64_t rows = run.train.micro_batch;
  const spec::Layout layout = strategies::trainable_layout(run, comm.size());
  models::Model model = models::make_model(run.model);
  const program::Program step = strategies::compile_step(run, spec::model_table(run, rows), layout, comm.rank());
  const AxisGroups groups(comm, step);
  FlatParameters parameters(model.groups, step, comm, {}, 1);
  Ran ran{.gradients = std::vector<at::Tensor>(model.groups.size())};
  ModelBindings bindings(
      model.blocks, parameters, groups,
      [&](int group, int, const float*, int64_t) { ran.gradients[group] = parameters.group(group).gradient().clone(); },
      {});
  Executor executor(step, bindings.table());
  StepInput input{.micro_batches = {}, .weight = 1.0 / 32};
  for (int64_t begin = first; begin < last; begin += rows)
    input.micro_batches.push_back({batch().narrow(0, begin, rows).narrow(1, 0, 8).contiguous(),
                                   batch().narrow(0, begin, rows).narrow(1, 1, 8).contiguous()});
  bindings.begin_step(std::move(input));
  executor.run(0);
  executor.drain();
  ran.loss_sum = bindings.output().loss_sum;
  ran.count = bindings.output().count;
  return ran;
}

// The gradients of a whole batch on one rank, with micro-batches of `rows` sequences.
std::vector<at::Tensor> gradients(bool tied, int64_t rows, double& loss) {
  spec::RunFile run = tiny(tied);
  run.train.micro_batch = rows;
  Communicator comm = Communicator::create();
  const Ran ran = run_step(run, comm, 0, 4);
  EXPECT_EQ(ran.count, 32);
  loss = ran.loss_sum;
  return ran.gradients;
}

TEST(ModelBindings, RefuseAStepWithFewerMicroBatchesThanTheProgram) {
  Communicator comm = Communicator::create();
  for (const int64_t last : {0, 2}) {
    EXPECT_ERROR(run_step(tiny(true), comm, 0, last), Code::kBadConfig,
                 last == 0 ? "runs micro-batch 0, but the input of the step has 0 micro-batches"
                           : "runs micro-batch 1, but the input of the step has 1 micro-batch\n",
                 "fix: StepInput::micro_batches");
  }
}

class Tied : public testing::TestWithParam<bool> {};

TEST_P(Tied, MicroBatchesAddUpToTheGradientOfTheBatch) {
  double whole_loss = 0, parts_loss = 0;
  const auto whole = gradients(GetParam(), 4, whole_loss);
  const auto parts = gradients(GetParam(), 1, parts_loss);
  EXPECT_NEAR(whole_loss, parts_loss, 1e-5 * whole_loss);
  for (size_t g = 0; g < whole.size(); ++g) {
    ASSERT_TRUE(whole[g].defined()) << "no step for group " << g;
    EXPECT_GT(whole[g].abs().max().item<float>(), 0);
    EXPECT_LT((whole[g] - parts[g]).abs().max().item<float>(), 1e-5 * whole[g].abs().max().item<float>())
        << "group " << g;
  }
}

INSTANTIATE_TEST_SUITE_P(Embeddings, Tied, testing::Bool());

// bf16 has 8 bits: rounding to the nearest is off by at most 2^-8 of a number. Each rank rounds its gradient, and the
// sum is rounded once more: 2^-7 of the terms together.
TEST(Compression, RoundsTheGradientOfEachRankOnce_AndTheirSumOnce) {
  spec::RunFile run = tiny(false);
  std::vector<Ran> alone;
  run.train.batch = 2;
  for (const int64_t first : {0, 2}) {
    Communicator comm = Communicator::create();
    alone.push_back(run_step(run, comm, first, first + 2));
  }
  run.train.batch = 4;
  run.strategy.compression = "bf16";
  std::vector<Ran> both(2);
  run_inproc(
      2, [&](Communicator& comm) { both[comm.rank()] = run_step(run, comm, 2 * comm.rank(), 2 * comm.rank() + 2); });
  bool has_rounded = false;
  for (size_t g = 0; g < both[0].gradients.size(); ++g) {
    const at::Tensor sum = alone[0].gradients[g] + alone[1].gradients[g], found = both[0].gradients[g];
    const at::Tensor bound = 0x1p-7 * (alone[0].gradients[g].abs() + alone[1].gradients[g].abs());
    EXPECT_TRUE(((found - sum).abs() <= bound).all().item<bool>()) << "group " << g;
    EXPECT_TRUE(at::equal(found, found.to(at::kBFloat16).to(at::kFloat))) << "group " << g;
    EXPECT_TRUE(at::equal(found, both[1].gradients[g])) << "group " << g;
    has_rounded = has_rounded || !at::equal(found, sum);
  }
  EXPECT_TRUE(has_rounded);
}

}  // namespace
}  // namespace herd::runtime
