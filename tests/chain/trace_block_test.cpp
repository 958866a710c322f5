// Traces the blocks of herd's own families, and compares the counts with their torch-free tables.
#include "herd/chain/trace_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/randint.h>

#include "herd/bridge/budget_allocator.h"
#include "herd/models/decoder.h"
#include "herd/spec/build_model_table.h"
#include "tests/models/training_run_internal.h"

namespace herd {
namespace {

struct Family {
  std::string kind, norm, recompute;
  int64_t heads, kv_heads, width, ffn;
};

spec::RunFile run_of(const Family& family) {
  spec::RunFile run;
  run.model.kind = family.kind, run.model.norm = family.norm, run.strategy.recompute = family.recompute;
  run.model.layers = 2, run.model.width = family.width, run.model.ffn = family.ffn;
  run.model.heads = family.heads, run.model.kv_heads = family.kv_heads;
  run.model.head_width = family.width / family.heads;
  run.model.context = 64, run.model.vocab = 800, run.model.tie_embeddings = family.kind == "gpt";
  return run;
}

class FamilyByTrace : public testing::TestWithParam<Family> {};

// Backward's scratch may be less than the table says where torch reuses memory, never more.
TEST_P(FamilyByTrace, HasTheNamesShapesFlopsAndBytesOfItsTable) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  DeviceMemory::install();
  const spec::RunFile run = run_of(GetParam());
  const int64_t B = 2, T = run.model.context;
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
    EXPECT_EQ(traced.forward.matmul_flops, expected.forward.matmul_flops);
    EXPECT_EQ(traced.backward.matmul_flops, expected.backward.matmul_flops);
    EXPECT_NEAR(static_cast<double>(traced.graph_bytes), static_cast<double>(expected.graph_bytes),
                0.01 * static_cast<double>(expected.graph_bytes));
    const int64_t all = expected.graph_bytes + expected.backward.scratch_bytes;
    EXPECT_LE(traced.graph_bytes + traced.backward.scratch_bytes, all + 256);
    EXPECT_GE(traced.graph_bytes + traced.backward.scratch_bytes, all - all / 100 - 256);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyByTrace,
                         testing::Values(Family{"gpt", "layernorm", "none", 4, 4, 64, 256},
                                         Family{"gpt", "rmsnorm", "selective", 6, 6, 96, 200},
                                         Family{"llama", "rmsnorm", "none", 4, 2, 64, 160},
                                         Family{"llama", "rmsnorm", "selective", 6, 1, 96, 384}));

}  // namespace
}  // namespace herd
