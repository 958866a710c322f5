#include "herd/models/gpt.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/nn/run_block.h"
#include "herd/spec/model_table.h"

namespace herd::models {
namespace {

struct Case {
  bool tied;
  const char* norm;
};

class Gpt : public testing::TestWithParam<Case> {
 protected:
  spec::RunFile run() const {
    spec::RunFile file;
    file.model = {.layers = 3, .width = 32, .heads = 4, .ffn = 48, .context = 10, .vocab = 50};
    file.model.kv_heads = 4;
    file.model.tie_embeddings = GetParam().tied;
    file.model.norm = GetParam().norm;
    return file;
  }
};

TEST_P(Gpt, HasTheNamesShapesAndOrderOfItsTable) {
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
TEST_P(Gpt, MultipliesAsOftenAsItsTableSays) {
  const spec::RunFile file = run();
  const spec::ModelTable table = spec::model_table(file, 2);
  const Model model = make_model(file.model);
  const int64_t tokens = 2 * file.model.context;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    double flops = 0;
    for (const auto& group : model.blocks[b]->groups()) {
      for (const nn::Parameter& parameter : group->parameters()) {
        const nn::ParameterSpec& spec = parameter.spec();
        const bool multiplies = spec.sizes.size() == 2 && (b > 0);
        if (multiplies) flops += 2.0 * static_cast<double>(tokens * spec.elements());
      }
    }
    const bool loss = b + 1 == model.blocks.size();
    EXPECT_EQ(table.blocks[b].forward.matmul_flops, loss ? 3 * flops : flops) << table.blocks[b].name;
    EXPECT_EQ(table.blocks[b].backward.matmul_flops, loss ? 0 : 2 * flops) << table.blocks[b].name;
  }
}

TEST_P(Gpt, DecaysMatricesAndNothingElse) {
  for (const auto& group : make_model(run().model).groups) {
    for (const nn::Parameter& parameter : group->parameters()) {
      const nn::ParameterSpec& spec = parameter.spec();
      EXPECT_EQ(spec.decay, spec.sizes.size() == 2 && spec.name != "wpe.weight") << spec.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Gpt,
                         testing::Values(Case{true, "layernorm"}, Case{false, "layernorm"}, Case{true, "rmsnorm"},
                                         Case{false, "rmsnorm"}),
                         [](const auto& test) {
                           return std::string(test.param.norm) + (test.param.tied ? "Tied" : "Untied");
                         });

TEST(GptErrors, RefusesKindsThatAreNotBuilt) {
  for (const char* kind : {"llama", "bert", "t5", "moe"}) {
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
