// A step of a real model, executed as a Program, against autograd over the whole chain.
#include "herd/runtime/model_bindings.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "herd/models/decoder.h"
#include "herd/nn/run_block.h"
#include "herd/runtime/executor.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::runtime {
namespace {

spec::RunFile tiny(bool tied) {
  return spec::parse_run_text(
      std::string("[model]\nlayers = 2\nwidth = 32\nheads = 2\ncontext = 8\nvocab = 64\n") +
          "tie_embeddings = " + (tied ? "true" : "false") +
          "\n[train]\nbatch = 4\nmicro_batch = 2\n[optimizer]\nclip = 0\n[data]\nkind = \"random\"\n",
      "test");
}

// The gradients of one step, executed with micro-batches of `rows` rows, per group.
std::vector<at::Tensor> gradients(bool tied, int64_t rows, double& loss) {
  spec::RunFile run = tiny(tied);
  run.train.micro_batch = rows;
  const spec::Layout layout = strategies::trainable_layout(run, 1);
  models::Model model = models::make_model(run.model);
  Communicator comm = Communicator::create();
  const program::Program step = strategies::compile_step(run, spec::model_table(run, rows), layout, 0);
  const AxisGroups groups(comm, step);
  FlatParameters parameters(model.groups, step, comm, {}, 1);
  std::vector<at::Tensor> found(model.groups.size());
  ModelBindings bindings(
      model.blocks, parameters, groups,
      [&](int group, const float*, int64_t) { found[group] = parameters.group(group).gradient().clone(); }, {});
  Executor executor(step, bindings.table());
  const at::Tensor tokens = (at::arange(4 * 9, at::kLong) * 37 % 64).view({4, 9});
  StepInput input{.micro_batches = {}, .weight = 1.0 / 32};
  for (int64_t begin = 0; begin < 4; begin += rows)
    input.micro_batches.push_back({tokens.narrow(0, begin, rows).narrow(1, 0, 8).contiguous(),
                                   tokens.narrow(0, begin, rows).narrow(1, 1, 8).contiguous()});
  bindings.begin_step(std::move(input));
  executor.run(0);
  executor.drain();
  loss = bindings.output().loss_sum;
  EXPECT_EQ(bindings.output().count, 32);
  return found;
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

}  // namespace
}  // namespace herd::runtime
