#include "herd/models/decoder.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/nn/run_block.h"
#include "herd/spec/build_model_table.h"
#include "training_run_internal.h"

namespace herd::models {
namespace {

struct DecoderCase {
  const char* name;
  const char* kind;
  bool tied;
  const char* norm;
  int64_t kv_heads = 4, head_width = 0;
  int64_t shared_experts = 0;
  bool qkv_bias = false, qk_norm = false, shared_gate = false;
  int64_t dense_layers = 0;
};

class Decoder : public testing::TestWithParam<DecoderCase> {
 protected:
  spec::RunFile run() const {
    spec::RunFile file;
    file.model = {.layers = 3, .width = 32, .heads = 4, .ffn = 48, .context = 10, .vocab = 50};
    file.model.kind = GetParam().kind;
    file.model.kv_heads = GetParam().kv_heads;
    file.model.head_width = GetParam().head_width;
    file.model.tie_embeddings = GetParam().tied;
    file.model.norm = GetParam().norm;
    file.model.shared_experts = GetParam().shared_experts;
    file.model.expert_ffn = 24;
    file.model.qkv_bias = GetParam().qkv_bias, file.model.qk_norm = GetParam().qk_norm;
    file.model.shared_gate = GetParam().shared_gate, file.model.dense_layers = GetParam().dense_layers;
    return file;
  }
};

TEST_P(Decoder, HasTheNamesShapesAndOrderOfItsTable) {
  const Model model = make_model(run().model);
  const spec::ModelTable table = spec::model_table(run(), 1);
  ASSERT_EQ(model.groups.size(), table.groups.size());
  for (size_t g = 0; g < table.groups.size(); ++g) {
    EXPECT_EQ(model.groups[g]->name(), table.groups[g].name);
    EXPECT_EQ(model.groups[g]->elements(), table.groups[g].elements());
    ASSERT_EQ(model.groups[g]->parameters().size(), table.groups[g].parameters.size());
    for (size_t p = 0; p < table.groups[g].parameters.size(); ++p) {
      const nn::ParameterSpec& mine = model.groups[g]->parameters()[p].spec();
      EXPECT_EQ(mine.name, table.groups[g].parameters[p].name);
      EXPECT_EQ(mine.sizes, table.groups[g].parameters[p].sizes);
    }
  }
  ASSERT_EQ(model.blocks.size(), table.blocks.size());
  const auto block_groups = model.block_groups();
  for (size_t b = 0; b < table.blocks.size(); ++b) {
    EXPECT_EQ(model.blocks[b]->name(), table.blocks[b].name);
    EXPECT_EQ(block_groups[b], table.blocks[b].groups);
  }
  EXPECT_EQ(model.parameters(), table.parameters());
}

// Every GEMM of a step counted by running it: 2 * rows * columns * inner, from the shapes that flow through.
TEST_P(Decoder, MultipliesAsOftenAsItsTableSays) {
  const spec::RunFile file = run();
  const spec::ModelTable table = spec::model_table(file, 2);
  const Model model = make_model(file.model);
  const int64_t tokens = 2 * file.model.context;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    double flops = 0;
    for (const auto& group : model.blocks[b]->groups()) {
      for (const nn::Parameter& parameter : group->parameters()) {
        const nn::ParameterSpec& spec = parameter.spec();
        const bool multiplies = spec.sizes.size() >= 2 && (b > 0);
        const bool is_masked = table.masked_tokens > 0 && b + 1 == model.blocks.size();
        const int64_t rows = is_masked ? 2 * table.masked_tokens : tokens;
        const int64_t experts = spec.sizes.size() == 3 ? file.model.experts : 1;  // a token uses top_k of them
        const int64_t used = spec.sizes.size() == 3 ? file.model.top_k : 1;
        if (multiplies) flops += 2.0 * static_cast<double>(rows * spec.elements() / experts * used);
      }
    }
    const bool loss = b + 1 == model.blocks.size();
    EXPECT_EQ(table.blocks[b].forward.matmul_flops, loss ? 3 * flops : flops) << table.blocks[b].name;
    EXPECT_EQ(table.blocks[b].backward.matmul_flops, loss ? 0 : 2 * flops) << table.blocks[b].name;
  }
}

// Bytes that a block's graph holds beyond its input and output, counted by the allocator.
int64_t kept_by_forward(nn::Block& block, const nn::Tuple& x, const nn::Context& context) {
  const int64_t before = DeviceMemory::live_bytes();
  const nn::Graph graph = nn::run_forward(block, x, context);
  int64_t outputs = 0;
  for (const at::Tensor& output : graph.outputs) outputs += static_cast<int64_t>(output.nbytes());
  return DeviceMemory::live_bytes() - before - outputs;
}

TEST_P(Decoder, KeepsTheBytesItsTableSays) {
  DeviceMemory::install();
  struct Kind {
    double dropout;
    const char *precision, *recompute;
  };
  for (const Kind& kind :
       {Kind{0, "fp32", "none"}, Kind{0.1, "fp32", "none"}, Kind{0.1, "fp32", "selective"}, Kind{0, "bf16", "none"},
        Kind{0, "fp16", "none"}, Kind{0.1, "fp16", "none"}, Kind{0.1, "fp16", "selective"}}) {
    spec::RunFile file = run();
    file.model.width = 64, file.model.ffn = 256, file.model.context = 64, file.model.dropout = kind.dropout;
    file.strategy.precision = kind.precision, file.strategy.recompute = kind.recompute;
    const spec::ModelTable table = spec::model_table(file, 2);
    const TrainingRun training(make_model(file.model, table, RankPlace{}));
    const nn::Context context{.training = true, .samples = {0, 1}};
    nn::Tuple x = {at::zeros({2, 64}, at::kLong)};
    for (size_t b = 0; b + 1 < table.blocks.size(); ++b) {
      const auto expected = static_cast<double>(table.blocks[b].graph_bytes - table.blocks[b].input_bytes);
      EXPECT_NEAR(static_cast<double>(kept_by_forward(*training.model().blocks[b], x, context)), expected,
                  0.01 * expected)
          << table.blocks[b].name << " with dropout " << kind.dropout << ", " << kind.precision << ", "
          << kind.recompute;
      x = nn::run_without_graph(*training.model().blocks[b], x, context);
    }
  }
}

TEST_P(Decoder, DecaysMatricesAndNothingElse) {
  for (const auto& group : make_model(run().model).groups) {
    for (const nn::Parameter& parameter : group->parameters()) {
      const nn::ParameterSpec& spec = parameter.spec();
      EXPECT_EQ(spec.decay, spec.sizes.size() >= 2 && spec.name != "wpe.weight" && spec.name != "segments.weight")
          << spec.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Decoder,
    testing::Values(
        DecoderCase{"GptTied", "gpt", true, "layernorm"}, DecoderCase{"GptUntied", "gpt", false, "layernorm"},
        DecoderCase{"GptRmsTied", "gpt", true, "rmsnorm"}, DecoderCase{"GptRmsUntied", "gpt", false, "rmsnorm"},
        DecoderCase{"BertTied", "bert", true, "layernorm"}, DecoderCase{"BertUntied", "bert", false, "layernorm"},
        DecoderCase{"GptGrouped", "gpt", false, "layernorm", 2, 12}, DecoderCase{"LlamaTied", "llama", true, "rmsnorm"},
        DecoderCase{"LlamaUntied", "llama", false, "rmsnorm"},
        DecoderCase{"LlamaGrouped", "llama", false, "rmsnorm", 2},
        DecoderCase{"LlamaOneKeyHead", "llama", true, "rmsnorm", 1, 12}, DecoderCase{"MoeTied", "moe", true, "rmsnorm"},
        DecoderCase{"MoeShared", "moe", false, "rmsnorm", 2, 0, 2},
        DecoderCase{"Qwen2", "llama", false, "rmsnorm", 2, 0, 0, true},
        DecoderCase{"Qwen3", "llama", true, "rmsnorm", 2, 12, 0, false, true},
        DecoderCase{"Qwen2Moe", "moe", false, "rmsnorm", 2, 0, 2, true, false, true},
        DecoderCase{"DenseFirst", "moe", true, "rmsnorm", 1, 12, 1, false, true, false, 1}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(DecoderErrors, RefusesKindsThatAreNotBuilt) {
  for (const char* kind : {"t5", "chain"}) {
    spec::RunFile::Model model;
    model.kind = kind;
    try {
      make_model(model);
      ADD_FAILURE() << "built " << kind;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_NE(error.message().find(kind), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace herd::models
