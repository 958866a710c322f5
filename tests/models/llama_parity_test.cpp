// Logits, loss and gradients of Llama, Qwen and their mixtures of experts equal those of a plain PyTorch script, and of
// transformers where it is installed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "herd/models/decoder.h"
#include "python_exchange_internal.h"
#include "tests/support/python_with_torch.h"
#include "tests/support/temporary_folder.h"

namespace herd::models {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSentences = 4, kTokens = 24, kWords = 61;

struct LlamaCase {
  const char* name;
  bool tied = false;
  int64_t kv_heads = 4, head_width = 8;
  const char* scaling = "none";
  int64_t experts = 0, shared_experts = 0;  // 0 experts: a llama
  const char* router = "softmax";
  double balance_loss = 0, z_loss = 0;
  bool qkv_bias = false, qk_norm = false, shared_gate = false;
  int64_t dense_layers = 0;
};

constexpr LlamaCase kCases[] = {
    {"Plain", false, 4, 8, "none"},
    {"Tied", true, 4, 8, "none"},
    {"Grouped", false, 2, 8, "none"},
    {"OneKeyHead_WideHeads_Linear", true, 1, 12, "linear"},
    {"Grouped_Llama3", false, 2, 8, "llama3"},
    {"Tied_Grouped_Llama3", true, 2, 16, "llama3"},
    {"Mixtral", false, 4, 8, "none", 5},
    {"Mixtral_Tied_Grouped_Llama3", true, 2, 8, "llama3", 3},
    {.name = "Qwen2", .kv_heads = 2, .qkv_bias = true},
    {.name = "Qwen3_Tied_WideHeads", .tied = true, .kv_heads = 2, .head_width = 12, .qk_norm = true},
    {.name = "Qwen2Moe", .kv_heads = 4, .experts = 5, .shared_experts = 2, .qkv_bias = true, .shared_gate = true},
    {.name = "Qwen3Moe_Tied_Llama3_DenseFirst",
     .tied = true,
     .kv_heads = 1,
     .head_width = 12,
     .scaling = "llama3",
     .experts = 5,
     .qk_norm = true,
     .dense_layers = 1},
    {.name = "DeepSeekMoe", .experts = 6, .shared_experts = 2, .dense_layers = 1}};
// Those that transformers does not have.
constexpr LlamaCase kOwnCases[] = {{"Experts_RouterLosses", false, 2, 8, "none", 5, 0, "softmax", 0.3, 0.02},
                                   {"Experts_Sigmoid_Shared", false, 4, 8, "none", 5, 2, "sigmoid", 0.2, 0}};

spec::RunFile::Model small_llama(const LlamaCase& test) {
  spec::RunFile::Model model;
  model.kind = "llama";
  model.layers = 2, model.width = 32, model.heads = 4, model.ffn = 80, model.context = 40, model.vocab = kWords;
  model.kv_heads = test.kv_heads, model.head_width = test.head_width;
  model.tie_embeddings = test.tied;
  model.norm_eps = 1e-6;
  model.rope_theta = 40;
  model.rope_scaling = test.scaling;
  model.rope_factor = 4, model.rope_original_context = 16;
  model.qkv_bias = test.qkv_bias, model.qk_norm = test.qk_norm;
  if (test.experts == 0) return model;
  model.kind = "moe";
  model.experts = test.experts, model.shared_experts = test.shared_experts, model.expert_ffn = 40;
  model.router = test.router;
  model.normalize_weights = test.shared_experts == 0;
  model.shared_gate = test.shared_gate, model.dense_layers = test.dense_layers;
  model.balance_loss = test.balance_loss, model.z_loss = test.z_loss;
  return model;
}

at::Tensor sentences() {
  return at::arange(kSentences * (kTokens + 1), at::kLong).mul(37).remainder(kWords).view({kSentences, kTokens + 1});
}

TrainingRun make_run(const LlamaCase& test) {
  TrainingRun run(make_model(small_llama(test)));
  enlarge(run);
  return run;
}

std::string json_of(const spec::RunFile::Model& m) {
  const auto number = [](double value) { return std::to_string(value); };
  std::string rope = "{\"rope_theta\": " + number(m.rope_theta);
  rope += ", \"rope_type\": \"" + (m.rope_scaling == "none" ? "default" : m.rope_scaling) + "\"";
  if (m.rope_scaling != "none") rope += ", \"factor\": " + number(m.rope_factor);
  if (m.rope_scaling == "llama3")
    rope += ", \"low_freq_factor\": " + number(m.rope_low_freq_factor) +
            ", \"high_freq_factor\": " + number(m.rope_high_freq_factor) +
            ", \"original_max_position_embeddings\": " + std::to_string(m.rope_original_context);
  std::string json = "{\"rope\": " + rope + "}, \"eps\": " + number(m.norm_eps) +
                     ", \"tied\": " + (m.tie_embeddings ? "true" : "false") +
                     ", \"qkv_bias\": " + (m.qkv_bias ? "true" : "false") +
                     ", \"qk_norm\": " + (m.qk_norm ? "true" : "false");
  if (m.is_moe())
    json += ", \"experts\": " + std::to_string(m.experts) + ", \"top_k\": " + std::to_string(m.top_k) +
            ", \"expert_ffn\": " + std::to_string(m.expert_ffn) + ", \"router\": \"" + m.router +
            "\", \"normalize\": " + (m.normalize_weights ? "true" : "false") +
            ", \"balance_loss\": " + number(m.balance_loss) + ", \"z_loss\": " + number(m.z_loss) +
            ", \"shared\": " + std::to_string(m.shared_experts) +
            ", \"shared_gate\": " + (m.shared_gate ? "true" : "false") +
            ", \"dense_layers\": " + std::to_string(m.dense_layers);
  for (const auto& [key, value] : {std::pair("layers", m.layers),
                                   {"width", m.width},
                                   {"heads", m.heads},
                                   {"kv_heads", m.kv_heads},
                                   {"head_width", m.head_width},
                                   {"ffn", m.ffn},
                                   {"vocab", m.vocab},
                                   {"context", m.context}})
    json += ", \"" + std::string(key) + "\": " + std::to_string(value);
  return json + "}";
}

// The script runs once for each way, over one folder per kind of model.
class LlamaParity : public testing::TestWithParam<std::tuple<const char*, LlamaCase>> {
 protected:
  static void SetUpTestSuite() {
    const std::string python = python_with_torch();
    if (python.empty()) return;
    root_ = std::make_unique<TemporaryFolder>();
    std::string folders, own_folders;
    std::vector<LlamaCase> all(std::begin(kCases), std::end(kCases));
    all.insert(all.end(), std::begin(kOwnCases), std::end(kOwnCases));
    for (const LlamaCase& test : all) {
      const fs::path folder = *root_ / test.name;
      fs::create_directory(folder);
      write_input(folder, make_run(test), sentences());
      std::ofstream(folder / "model.json") << json_of(small_llama(test));
      const bool is_own = test.balance_loss > 0;
      (is_own ? own_folders : folders) += " " + folder.string();
    }
    for (const char* by : {"torch", "transformers"}) {
      const std::string found = python + " -c 'from importlib.util import find_spec as f; exit(not f(\"" + by + "\"))'";
      if (std::system(found.c_str()) != 0) continue;
      const std::string command = python + " " + std::getenv("HERD_SOURCE_DIR") + "/tests/models/llama_parity.py " +
                                  by + folders + (by == std::string("torch") ? own_folders : "");
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
    }
  }
  static void TearDownTestSuite() { root_.reset(); }

  static std::unique_ptr<TemporaryFolder> root_;
};

std::unique_ptr<TemporaryFolder> LlamaParity::root_;

TEST_P(LlamaParity, LogitsLossAndGradientsAreEqual) {
  const auto& [by, test] = GetParam();
  if (!root_) GTEST_SKIP() << "no python with torch and numpy (.venv, HERD_PYTHON or python3)";
  const auto theirs = [&, &by = by, &test = test](const char* what) {
    return *root_ / test.name / (std::string(by) + "_" + what + ".bin");
  };
  if (!fs::exists(theirs("logits"))) GTEST_SKIP() << "no " << by << " in that python";
  TrainingRun run = make_run(test);
  const at::Tensor inputs = sentences().slice(1, 0, kTokens), targets = sentences().slice(1, 1, kTokens + 1);
  nn::Tuple x = {inputs};
  for (const auto& block : run.model().blocks) x = nn::run_without_graph(*block, x, {});
  std::vector<float> logits = read_file<float>(theirs("logits"));
  ASSERT_EQ(static_cast<int64_t>(logits.size()), x[0].numel());
  expect_near(x[0], at::from_blob(logits.data(), x[0].sizes(), at::kFloat), "logits");

  const double loss = run.gradient(inputs, targets, 2, {.training = true}),
               expected = read_file<double>(theirs("loss")).at(0);
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
  expect_gradients_near(run, theirs("gradients"));
}

INSTANTIATE_TEST_SUITE_P(By, LlamaParity,
                         testing::Combine(testing::Values("torch", "transformers"), testing::ValuesIn(kCases)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name;
                         });

INSTANTIATE_TEST_SUITE_P(Own, LlamaParity, testing::Combine(testing::Values("torch"), testing::ValuesIn(kOwnCases)),
                         [](const auto& one) { return std::string(std::get<1>(one.param).name); });

}  // namespace
}  // namespace herd::models
