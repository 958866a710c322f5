// The run files of share/herd/models: parameter counts computed from their layers are those that were published.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>

#include "herd/base/error.h"
#include "herd/spec/activations.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/model_states.h"

namespace herd::spec {
namespace {

namespace fs = std::filesystem;

fs::path folder() { return fs::path(std::getenv("HERD_SOURCE_DIR")) / "share/herd/models"; }

ModelTable zoo(const std::string& name, std::vector<std::string> overrides = {}) {
  const RunFile run = parse_run_file((folder() / (name + ".toml")).string(), overrides);
  return model_table(run, run.train.micro_batch);
}

TEST(Zoo, HasThePublishedParameters_ToTheLastOneWhereWeightsArePublic) {
  const std::map<std::string, int64_t> published = {
      {"bert-base", 109514298},    {"bert-large", 335174458},     {"gpt2", 124439808},
      {"gpt2-medium", 354823168},  {"gpt2-large", 774030080},     {"gpt2-xl", 1557611200},
      {"llama-7b", 6738415616},    {"llama-13b", 13015864320},    {"llama-33b", 32528943616},
      {"llama-65b", 65285660672},  {"llama2-70b", 68976648192},   {"llama3-8b", 8030261248},
      {"llama3-70b", 70553706496}, {"llama3-405b", 405853388800}, {"t5-small", 60506624},
      {"t5-base", 222903552},      {"t5-large", 737668096},       {"t5-3b", 2851598336},
      {"t5-11b", 11307321344},     {"gpt-162m", 162447360},       {"mixtral-8x7b", 46702792704}};
  // Papers that print a rounded count: within half of its last digit.
  const std::map<std::string, std::pair<double, double>> rounded = {
      {"turing-nlg", {17.2e9, 0.05e9}},   {"gpt3-175b", {175e9, 0.5e9}},     {"megatron-22b", {22e9, 0.5e9}},
      {"megatron-7.5b", {7.5e9, 0.05e9}}, {"megatron-175b", {175e9, 0.5e9}}, {"megatron-530b", {530e9, 1e9}},
      {"megatron-1t", {1000e9, 10e9}}};
  for (const auto& entry : fs::directory_iterator(folder())) {
    const std::string name = entry.path().stem();
    const int64_t computed = zoo(name).parameters();
    if (const auto exact = published.find(name); exact != published.end()) {
      EXPECT_EQ(computed, exact->second) << name;
    } else {
      ASSERT_TRUE(rounded.contains(name)) << name << " has no published count in this test";
      EXPECT_NEAR(static_cast<double>(computed), rounded.at(name).first, rounded.at(name).second) << name;
    }
  }
}

// A token uses 12.9 B of 46.7 B parameters, those of the embedding included, which takes no FLOP.
TEST(Zoo, CountsTheExpertsThatATokenUses) {
  const ModelTable table = zoo("mixtral-8x7b");
  double flops = 0;
  for (const BlockShape& block : table.blocks) flops += block.forward.matmul_flops + block.backward.matmul_flops;
  EXPECT_NEAR(flops / 6 / static_cast<double>(table.tokens) + 32000 * 4096, 12.88e9, 0.01e9);
  EXPECT_EQ(table.groups[2].name, "h.0.experts");
  EXPECT_EQ(table.groups[2].elements(), int64_t{8} * 3 * 4096 * 14336);
}

TEST(Zoo, NeedsTheStatesThatLecturesQuote) {
  const auto fp32_gb = [](const std::string& name) {
    return static_cast<double>(zoo(name).parameters()) * kFp32Adam.total() / 1e9;
  };
  EXPECT_NEAR(fp32_gb("bert-large"), 5.12, 0.06 * 5.12);  // they count 0.32 B parameters, its weights are 0.335 B
  EXPECT_NEAR(fp32_gb("gpt2-xl"), 24, 0.04 * 24);         // 1.5 B, its weights are 1.558 B
  EXPECT_NEAR(fp32_gb("turing-nlg"), 275, 1);
  EXPECT_NEAR(fp32_gb("gpt3-175b"), 2800, 0.003 * 2800);
}

TEST(Zoo, KeepsWhatTheEquationOfLayersSays_WhereItKeepsTheSame) {
  // Per token and width the paper counts 34 bytes of 16-bit activations, 2 + 2 + 2 + 2 of them dropout masks and gelu's
  // output counted as its input; herd draws masks again (3sbh less) and keeps the same matrices.
  const RunFile run = parse_run_file((folder() / "megatron-22b.toml").string());
  const ModelTable table = model_table(run, 1);
  const double sbh = 2048.0 * 6144;
  EXPECT_NEAR(static_cast<double>(table.blocks[1].graph_bytes) / sbh, 34 - 2, 0.1);
  EXPECT_EQ(table.blocks[1].score_bytes, 0);  // blocked attention
  const ModelTable dropped = zoo("megatron-22b", {"model.dropout=0.1"});
  const LayerShape layer{.s = 2048, .b = 1, .h = 6144, .a = 64};
  // Two T x T matrices of 2 bytes; the paper's third is the mask of one byte.
  const double scores = layer_activation_bytes(layer) - 34 * sbh;
  EXPECT_DOUBLE_EQ(static_cast<double>(dropped.blocks[1].score_bytes), scores * 4 / 5);
}

TEST(Zoo, SharesLayersAmongTensorParallelRanks) {
  const ModelTable whole = zoo("llama3-8b"), part = zoo("llama3-8b", {"mesh.tp=8", "strategy.sequence_parallel=false"});
  EXPECT_EQ(part.parameters(), whole.parameters());
  const int64_t norms = 2 * 4096, matrices = whole.groups[1].elements() - norms;
  EXPECT_EQ(part.group_elements(1), matrices / 8 + norms);
  EXPECT_EQ(part.blocks[1].forward.matmul_flops, whole.blocks[1].forward.matmul_flops / 8);
  ASSERT_EQ(part.blocks[1].inner.size(), 1u);
  EXPECT_EQ(part.blocks[1].inner[0].bytes, 8192 * 4096 * 2);
  EXPECT_TRUE(whole.blocks[1].inner.empty());
  // sbh(10 + 24/t) with masks of sbh each, two of them whole: what is whole per token is 4 tensors.
  const double sbh = 8192.0 * 4096;
  const double whole_bytes = static_cast<double>(whole.blocks[1].graph_bytes);
  const double part_bytes = static_cast<double>(part.blocks[1].graph_bytes);
  const double replicated = 4 * 2;  // x, ln_1, h, ln_2
  EXPECT_NEAR((part_bytes - whole_bytes / 8) / sbh, replicated * 7 / 8, 0.01);
  // Of these the rows of norms are cut with sequence parallel, and what is gathered where it is gathered again: 2
  // gathers more beside 4 and the 4 reduce-scatters.
  const ModelTable rows = zoo("llama3-8b", {"mesh.tp=8"}),
                   again = zoo("llama3-8b", {"mesh.tp=8", "strategy.keep_gathered=false"});
  const auto kept = [&](const ModelTable& table) { return static_cast<double>(table.blocks[1].graph_bytes) / sbh; };
  EXPECT_NEAR(kept(part) - kept(rows), 2 * 2 * 7.0 / 8, 0.01);
  EXPECT_NEAR(kept(rows) - kept(again), 2 * 2 * 7.0 / 8, 0.01);
  EXPECT_EQ(rows.blocks[1].output_bytes * 8, part.blocks[1].output_bytes);
  const auto passes = [](const ModelTable& table) {
    const InnerCollective& inner = table.blocks[1].inner[0];
    return std::vector<int>{inner.times_forward, inner.times_backward, inner.times_recompute};
  };
  EXPECT_EQ(passes(part), (std::vector<int>{2, 2, 1}));
  EXPECT_EQ(passes(rows), (std::vector<int>{4, 4, 3}));
  EXPECT_EQ(passes(again), (std::vector<int>{4, 6, 2}));
  EXPECT_FALSE(rows.blocks[1].inner[0].is_all_reduce);
  // The final norm has a pass before the loss and one after it.
  const auto parts = [](int sum, const BlockShape& block) { return sum + block.num_program_blocks; };
  for (const char* name : {"gpt2", "llama3-8b"}) {
    const RunFile run =
        parse_run_file((folder() / (std::string(name) + ".toml")).string(), std::vector<std::string>{"mesh.tp=2"});
    const ModelTable table = model_table(run, 1);
    EXPECT_EQ(std::accumulate(table.blocks.begin(), table.blocks.end(), 0, parts),
              static_cast<int>(program_table(run, 1).blocks.size()) + 1)
        << name;
  }
  // Eight key heads of 128: each is on two of sixteen ranks.
  const ModelTable copied = zoo("llama3-8b", {"mesh.tp=16"});
  const int64_t keys = 2 * 8 * 128 * 4096;
  EXPECT_EQ(copied.parameters(), whole.parameters());
  EXPECT_EQ(copied.group_elements(1), (matrices - keys) / 16 + keys / 8 + norms);
  EXPECT_THROW(zoo("llama3-8b", {"mesh.tp=64"}), Error);
}

TEST(Zoo, HalvesBytesAndKeepsFlops_In16Bit) {
  const ModelTable wide = zoo("gpt2", {"strategy.precision=fp32"}), half = zoo("gpt2");
  EXPECT_EQ(wide.flops(), half.flops());
  EXPECT_EQ(half.blocks[1].input_bytes * 2, wide.blocks[1].input_bytes);
  EXPECT_EQ(half.compute_dtype, DType::kBF16);
}

}  // namespace
}  // namespace herd::spec
