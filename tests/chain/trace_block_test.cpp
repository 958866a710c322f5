// Traces the blocks of herd's own families, and compares the counts with their torch-free tables.
#include "herd/chain/trace_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "herd/bridge/budget_allocator.h"
#include "herd/models/decoder.h"
#include "herd/nn/deferred_gradients.h"
#include "herd/nn/run_block.h"
#include "herd/spec/build_model_table.h"
#include "tests/models/training_run_internal.h"

namespace herd {
namespace {

struct Family {
  std::string kind, norm, recompute;
  int64_t heads, kv_heads, width, ffn;
  std::string precision = "fp32";
  double dropout = 0;
};

spec::RunFile run_of(const Family& family) {
  spec::RunFile run;
  run.model.kind = family.kind, run.model.norm = family.norm, run.strategy.recompute = family.recompute;
  run.model.layers = 2, run.model.width = family.width, run.model.ffn = family.ffn;
  run.model.heads = family.heads, run.model.kv_heads = family.kv_heads;
  run.model.head_width = family.width / family.heads;
  run.strategy.precision = family.precision, run.model.dropout = family.dropout;
  run.model.context = 64, run.model.vocab = 800, run.model.tie_embeddings = family.kind == "gpt";
  return run;
}

// Runs backward in two halves, and measures what the first leaves to the second.
int64_t measured_pending(nn::Block& block, const std::function<nn::Tuple()>& inputs, const nn::Context& context) {
  for (const auto& group : block.groups()) group->begin_gradient();
  const int64_t before = DeviceMemory::live_bytes();
  nn::Tuple x = inputs();
  nn::Graph graph = nn::run_forward(block, x, context);
  nn::Tuple dy, y = nn::take_outputs(graph);
  for (const at::Tensor& output : y) dy.push_back(at::ones_like(output));
  x.clear(), y.clear();
  nn::DeferredGradients later;
  nn::run_backward(std::move(graph), dy, &later);
  dy.clear();
  const int64_t pending = DeviceMemory::live_bytes() - before;
  later.run();
  return pending;
}

// Tells whether what backward makes depends on the weights that it finds: they are NaN from its begin on.
bool reads_weights_backward(nn::Block& block, const std::function<nn::Tuple()>& inputs, const nn::Context& context) {
  std::vector<std::vector<char>> weights;
  for (const auto& group : block.groups()) group->begin_gradient();
  nn::Graph graph = nn::run_forward(block, inputs(), context);
  nn::Tuple dy;
  for (const at::Tensor& output : nn::take_outputs(graph)) dy.push_back(at::ones_like(output));
  for (const auto& group : block.groups()) {  // past autograd, which would refuse weights that change
    const at::Tensor& flat = group->weights();
    char* memory = static_cast<char*>(flat.mutable_data_ptr());
    weights.emplace_back(memory, memory + flat.nbytes());
    std::memset(memory, 0xff, flat.nbytes());  // NaN in every type
  }
  nn::Tuple made = nn::run_backward(std::move(graph), dy);
  for (size_t g = 0; g < weights.size(); ++g) {
    made.push_back(block.groups()[g]->gradient());
    std::memcpy(block.groups()[g]->weights().mutable_data_ptr(), weights[g].data(), weights[g].size());
  }
  return std::ranges::any_of(made, [](const at::Tensor& x) { return x.defined() && !x.isfinite().all().item<bool>(); });
}

class FamilyByTrace : public testing::TestWithParam<Family> {};

// Backward's scratch may be less than the table says where torch reuses memory, never more.
TEST_P(FamilyByTrace, HasTheNamesShapesFlopsAndBytesOfItsTable) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  DeviceMemory::install();
  const spec::RunFile run = run_of(GetParam());
  const int64_t B = 2, T = run.model.context;
  // With AVX2 alone oneDNN multiplies no numbers of 16 bits, and what torch does instead takes more scratch.
  const bool is_half = GetParam().precision == "bf16";
  const spec::ModelTable table = spec::program_table(run, B);
  const models::TrainingRun training(models::make_model(run.model, table, models::RankPlace{}));
  const models::Model& model = training.model();

  ASSERT_EQ(model.groups.size(), table.groups.size());
  for (size_t g = 0; g < table.groups.size(); ++g) {
    const auto& parameters = model.groups[g]->parameters();
    ASSERT_EQ(parameters.size(), table.groups[g].parameters.size());
    for (size_t p = 0; p < parameters.size(); ++p) {
      EXPECT_EQ(parameters[p].spec().name, table.groups[g].parameters[p].name);
      EXPECT_EQ(parameters[p].spec().sizes, table.groups[g].parameters[p].sizes);
    }
  }

  std::vector<std::vector<spec::TensorId>> inputs;
  for (size_t b = 0; b < table.blocks.size(); ++b) inputs.push_back(table.inputs_of(static_cast<int>(b)));
  const at::Tensor ids = at::randint(0, run.model.vocab, {B, T}, at::kLong);
  nn::Context context{.training = true, .tokens = T};
  for (int64_t i = 0; i < B; ++i) context.samples.push_back(i);
  BlockTracer tracer(inputs, {ids}, context);
  for (size_t b = 0; b < table.blocks.size(); ++b) {
    const spec::BlockShape& expected = table.blocks[b];
    spec::BlockShape traced;
    if (expected.is_loss())
      tracer.trace_loss(model.loss_block(), ids, static_cast<int>(b), traced);
    else
      tracer.trace(*model.blocks[b], static_cast<int>(b), traced);
    SCOPED_TRACE(expected.name);
    EXPECT_EQ(model.blocks[b]->name(), expected.name);
    EXPECT_EQ(traced.input_bytes, expected.input_bytes);
    EXPECT_EQ(traced.output_bytes, expected.output_bytes);
    EXPECT_TRUE(b == 0 || expected.forward.matmul_flops > 0);
    // With dropout attention is products like any other.
    const auto products = [&](const spec::PassCost& cost) {
      return cost.matmul_flops + (GetParam().dropout > 0 ? cost.attention_flops : 0);
    };
    EXPECT_EQ(products(traced.forward), products(expected.forward));
    EXPECT_EQ(products(traced.backward), products(expected.backward));
    EXPECT_NEAR(static_cast<double>(traced.graph_bytes), static_cast<double>(expected.graph_bytes),
                0.01 * static_cast<double>(expected.graph_bytes));
    const int64_t all = expected.graph_bytes + expected.backward.scratch_bytes;
    EXPECT_LE(traced.graph_bytes + traced.backward.scratch_bytes, all + (is_half ? all / 100 : 0) + 256);
    EXPECT_GE(traced.graph_bytes + traced.backward.scratch_bytes, all - all / 100 - 256);
    const int64_t forward = expected.graph_bytes + expected.output_bytes + expected.forward.scratch_bytes;
    if (!is_half) {
      EXPECT_LE(traced.graph_bytes + traced.output_bytes + traced.forward.scratch_bytes, forward + 256);
      EXPECT_GE(traced.graph_bytes + traced.output_bytes + traced.forward.scratch_bytes, forward - forward / 100 - 256);
    }
    if (expected.is_loss()) continue;
    const std::function<nn::Tuple()> inputs_of_block = [&]() -> nn::Tuple {
      if (b == 0) return {ids.clone()};
      return {at::randn({B, T, run.model.width}, model.groups[0]->dtype())};
    };
    nn::Block& block = *model.blocks[b];
    EXPECT_EQ(expected.pending_bytes > 0, b > 0);
    if (b > 0) {
      const auto pending = static_cast<double>(expected.pending_bytes);
      EXPECT_NEAR(static_cast<double>(measured_pending(block, inputs_of_block, context)), pending,
                  256 + 0.01 * pending);
    }
    EXPECT_EQ(reads_weights_backward(block, inputs_of_block, context), expected.backward_reads_weights);
    EXPECT_EQ(traced.backward_reads_weights, expected.backward_reads_weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyByTrace,
                         testing::Values(Family{"gpt", "layernorm", "none", 4, 4, 64, 256},
                                         Family{"gpt", "rmsnorm", "selective", 6, 6, 96, 200},
                                         Family{"llama", "rmsnorm", "none", 4, 2, 64, 160},
                                         Family{"llama", "rmsnorm", "selective", 6, 1, 96, 384},
                                         Family{"llama", "rmsnorm", "none", 4, 2, 64, 160, "bf16"},
                                         Family{"gpt", "layernorm", "none", 4, 4, 64, 256, "fp32", 0.1}));

}  // namespace
}  // namespace herd
