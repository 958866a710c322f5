#include "herd/spec/frozen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/spec/build_model_table.h"

namespace herd::spec {
namespace {

using testing::HasSubstr;

RunFile run_of(const std::string& frozen, bool tied = true) {
  RunFile run;
  run.model = {.layers = 2, .width = 8, .heads = 2, .context = 4, .vocab = 16, .tie_embeddings = tied};
  run.model.frozen = frozen;
  return run;
}

std::vector<std::string> groups_of(const ModelTable& table) {
  std::vector<std::string> names;
  for (const auto& group : table.groups) names.push_back(group.name + (group.frozen ? "*" : ""));
  return names;
}

TEST(Frozen, NamesParametersByPatterns) {
  EXPECT_TRUE(is_frozen("wte.weight h.0.*", "h.0.mlp.up.weight"));
  EXPECT_FALSE(is_frozen("wte.weight h.0.*", "h.1.mlp.up.weight"));
  EXPECT_TRUE(is_frozen("*.bias", "h.1.ln_1.bias"));
  EXPECT_TRUE(is_frozen("h.*.attn.*.weight", "h.11.attn.qkv.weight"));
  EXPECT_FALSE(is_frozen("h.1", "h.1.ln_1.bias"));
  EXPECT_FALSE(is_frozen("none", "wte.weight"));
}

TEST(Frozen, FormsGroupsOfItsOwn_BesideWhatIsTrained) {
  const ModelTable table = model_table(run_of("wte.weight h.0.* h.1.*.bias"), 1);
  EXPECT_EQ(groups_of(table), (std::vector<std::string>{"wte*", "wpe", "h.0*", "h.1", "h.1.frozen*", "ln_f"}));
  EXPECT_EQ(table.blocks[2].groups, (std::vector<int>{3, 4}));
  EXPECT_EQ(table.blocks[3].groups, (std::vector<int>{5, 0}));
  const ModelTable plain = model_table(run_of("none"), 1);
  EXPECT_EQ(table.parameters(), plain.parameters());
  EXPECT_EQ(table.frozen_parameters(), 16 * 8 + plain.group_elements(2) + 24 + 8 + 32 + 8 + 2 * 8);
  EXPECT_EQ(plain.frozen_parameters(), 0);
}

TEST(Frozen, SparesTheWorkForItsGradients) {
  const ModelTable plain = model_table(run_of("none", false), 2);
  const double rows = 2 * 4;
  const ModelTable table = model_table(run_of("h.1.mlp.up.weight head.weight", false), 2);
  EXPECT_EQ(table.blocks[2].backward.matmul_flops, plain.blocks[2].backward.matmul_flops - 2 * rows * 32 * 8);
  EXPECT_EQ(table.blocks[3].forward.matmul_flops, plain.blocks[3].forward.matmul_flops - 2 * rows * 16 * 8);
  EXPECT_EQ(table.first_trained(), 0);
  const ModelTable top = model_table(run_of("w*.weight h.0.*", false), 2);
  EXPECT_EQ(top.first_trained(), 2);
  EXPECT_EQ(top.blocks[1].graph_bytes, 0);
  EXPECT_EQ(top.blocks[1].backward.matmul_flops, 0);
  EXPECT_EQ(top.blocks[2].backward.matmul_flops, plain.blocks[2].backward.matmul_flops);
}

// The head of a bert multiplies the rows of hidden tokens alone.
TEST(Frozen, SparesTheWorkOfABertsHead) {
  const std::string model = "[model]\nkind = \"bert\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 40\nvocab = 50\n";
  const RunFile all = parse_run_text(model, "test"),
                frozen = parse_run_text(model + "frozen = \"wte.weight masked.dense.weight\"\n", "test");
  const double before = model_table(all, 3).blocks.back().forward.matmul_flops;
  EXPECT_DOUBLE_EQ(before, 6.0 * 3 * 6 * 16 * (50 + 16));  // 6 of 40 tokens
  EXPECT_DOUBLE_EQ(model_table(frozen, 3).blocks.back().forward.matmul_flops, before * 2 / 3);
}

std::string refusal(const std::string& frozen) {
  try {
    model_table(run_of(frozen), 1);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
}

TEST(Frozen, RefusesPatternsThatMatchNothing_AndThoseThatMatchAll) {
  EXPECT_THAT(refusal("wte.weight h.0.mlp.upp.weight"),
              testing::AllOf(HasSubstr("\"h.0.mlp.upp.weight\" matches none"), HasSubstr("h.0.mlp.up.weight")));
  EXPECT_THAT(refusal("h.9.*"), HasSubstr("the nearest names are h.0."));
  EXPECT_THAT(refusal("blocks.0.*"), HasSubstr("matches none of the model's 28 parameters"));
  EXPECT_THAT(refusal("*"), HasSubstr("nothing to train"));
}

}  // namespace
}  // namespace herd::spec
