#include "herd/spec/build_model_table.h"

#include <gtest/gtest.h>

#include <set>

#include "herd/spec/compute.h"
#include "tests/support/expect_error.h"

namespace herd::spec {
namespace {

RunFile gpt(int64_t layers, int64_t width, int64_t heads, int64_t context, int64_t vocab, bool tied) {
  RunFile run;
  run.model = {
      .layers = layers, .width = width, .heads = heads, .context = context, .vocab = vocab, .tie_embeddings = tied};
  return run;
}

int64_t elements(const ModelTable& table, const std::string& name) {
  for (const auto& group : table.groups) {
    for (const auto& parameter : group.parameters) {
      if (parameter.name == name) return parameter.elements();
    }
  }
  return -1;
}

TEST(ModelTable, Has162MParameters_ForTwelveLayersOf768Untied) {
  const ModelTable table = model_table(gpt(12, 768, 12, 256, 50257, false), 2);
  const int64_t layer = 12 * 768 * 768 + 13 * 768;  // weights, 9d of biases, 4d of norms
  EXPECT_EQ(table.parameters(), 2 * 50257 * 768 + 256 * 768 + 12 * layer + 2 * 768);
  EXPECT_NEAR(static_cast<double>(table.parameters()), 162e6, 1e6);
  EXPECT_EQ(table.blocks.size(), 14u);
  EXPECT_EQ(table.groups.size(), 14u);
  EXPECT_EQ(table.blocks[13].groups, (std::vector<int>{13}));
  EXPECT_EQ(elements(table, "head.weight"), 50257 * 768);
  EXPECT_EQ(elements(table, "h.11.attn.qkv.weight"), 3 * 768 * 768);
  EXPECT_EQ(elements(table, "h.0.mlp.up.bias"), 4 * 768);
}

TEST(ModelTable, AgreesWithTheEquationOfDecoders) {
  const ModelTable table = model_table(gpt(96, 12288, 96, 2048, 50257, true), 1);
  EXPECT_NEAR(static_cast<double>(table.parameters()), 175e9, 1.75e9);
  const double equation = decoder_parameters(50257, 12288, 96);
  EXPECT_NEAR(static_cast<double>(table.parameters()), equation, 1e-3 * equation);
}

TEST(ModelTable, SharesOneGroupBetweenFirstAndLastBlock_WhenEmbeddingsAreTied) {
  const ModelTable table = model_table(gpt(2, 64, 4, 32, 100, true), 3);
  EXPECT_EQ(table.groups[0].name, "wte");
  EXPECT_EQ(table.blocks.front().groups, (std::vector<int>{0, 1}));
  EXPECT_EQ(table.blocks.back().groups, (std::vector<int>{4, 0}));
  EXPECT_EQ(elements(table, "head.weight"), -1);
  std::set<std::string> names;
  for (const auto& group : table.groups) {
    for (const auto& parameter : group.parameters) EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
  }
}

TEST(ModelTable, RefusesRanksWithoutVocabulary) {
  RunFile run = gpt(2, 64, 8, 32, 7, true);
  run.mesh.tp = 8;
  EXPECT_ERROR(program_table(run, 1), Code::kBadConfig, "mesh.tp must not exceed model.vocab", "8 > 7",
               "fix: mesh.tp = 7 or less, or model.vocab = 8 or more");
  run.model.vocab = 8;
  EXPECT_EQ(program_table(run, 1).tp, 8);
}

TEST(ModelTable, LeavesOutBiasesOfNorms_WhenTheyAreRms) {
  RunFile run = gpt(1, 64, 4, 32, 100, true);
  run.model.norm = "rmsnorm";
  const ModelTable table = model_table(run, 1);
  EXPECT_EQ(elements(table, "h.0.ln_1.bias"), -1);
  EXPECT_EQ(elements(table, "h.0.ln_1.weight"), 64);
}

TEST(ModelTable, CountsSixFlopsPerMatrixWeightAndToken_PlusAttention) {
  const ModelTable table = model_table(gpt(12, 768, 12, 256, 50257, false), 2);
  const double matrices = 12 * 12 * 768.0 * 768 + 50257.0 * 768;
  const double scores = 4.0 * 512 * 256 * 768 / 2 * 3.5 * 12;  // causal, 2.5 times as much backward
  EXPECT_DOUBLE_EQ(table.flops(), training_flops(matrices, 512) + scores);
}

TEST(ModelTable, KeepsTheScoresOfEveryHead_WhenDropoutNeedsTheMathForm) {
  RunFile run = gpt(1, 64, 4, 32, 100, true);
  const int64_t flash = model_table(run, 2).blocks[1].graph_bytes;
  run.model.dropout = 0.1;
  const int64_t scores = 2 * 4 * 32 * 32;
  EXPECT_EQ(model_table(run, 2).blocks[1].graph_bytes, flash - 2 * 4 * 32 * 4 + 2 * scores * 4);
}

}  // namespace
}  // namespace herd::spec
