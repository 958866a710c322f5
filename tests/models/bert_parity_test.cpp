// Logits, loss and gradients of BERT equal those of a plain PyTorch script, and of transformers where it is installed.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <cstdlib>
#include <fstream>

#include "herd/data/sample_source.h"
#include "herd/models/decoder.h"
#include "python_exchange_internal.h"
#include "tests/support/python_with_torch.h"
#include "tests/support/temporary_folder.h"

namespace herd::models {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSentences = 4, kTokens = 24, kWords = 61;

spec::RunFile::Model small_bert(bool tied) {
  spec::RunFile::Model model;
  model.kind = "bert";
  model.layers = 2, model.width = 32, model.heads = 4, model.ffn = 80, model.context = 24, model.vocab = kWords;
  model.tie_embeddings = tied;
  model.norm_eps = 1e-12;
  return model;
}

at::Tensor inputs() {
  return at::arange(kSentences * kTokens, at::kLong).mul(37).remainder(kWords).view({kSentences, kTokens});
}

// Four targets in each sequence, which is what the model predicts of so many tokens.
at::Tensor targets() {
  at::Tensor out = at::full({kSentences, kTokens}, kIgnoredTarget, at::kLong);
  for (int64_t b = 0; b < kSentences; ++b) {
    for (int64_t i = 0; i < 4; ++i) out[b][(5 * b + 7 * i) % kTokens] = (11 * b + 3 * i) % kWords;
  }
  return out;
}

class BertParity : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(BertParity, LogitsLossAndGradientsAreEqual) {
  const auto& [by, tied] = GetParam();
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "no python with torch and numpy (.venv, HERD_PYTHON or python3)";
  const std::string found = python + " -c 'from importlib.util import find_spec as f; exit(not f(\"" + by + "\"))'";
  if (std::system(found.c_str()) != 0) GTEST_SKIP() << "no " << by << " in that python";
  const TemporaryFolder folder;
  const spec::RunFile::Model shape = small_bert(tied);
  TrainingRun run(make_model(shape));
  enlarge(run);
  write_input(folder.path(), run, at::stack({inputs(), targets()}));
  std::ofstream(folder.path() / "model.json")
      << "{\"layers\": 2, \"width\": 32, \"heads\": 4, \"ffn\": 80, \"context\": 24, \"vocab\": " << kWords
      << ", \"eps\": 1e-12, \"tied\": " << (tied ? "true" : "false") << "}";
  const std::string command = python + " " + std::getenv("HERD_SOURCE_DIR") + "/tests/models/bert_parity.py " + by +
                              " " + folder.path().string();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const auto theirs = [&, &by = by](const char* what) {
    return folder.path() / (std::string(by) + "_" + what + ".bin");
  };

  nn::Tuple x = {inputs()};
  for (const auto& block : run.model().blocks) x = nn::run_without_graph(*block, x, {});
  std::vector<float> logits = read_file<float>(theirs("logits"));
  ASSERT_EQ(static_cast<int64_t>(logits.size()), x[0].numel());
  expect_near(x[0], at::from_blob(logits.data(), x[0].sizes(), at::kFloat), "logits");

  // It divides by all tokens, and the loss is the mean of those that count.
  const auto share = targets().ge(0).to(at::kDouble).mean().item<double>();
  const double loss = run.gradient(inputs(), targets(), 2, {.training = true}) / share,
               expected = read_file<double>(theirs("loss")).at(0);
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
  expect_gradients_near(run, theirs("gradients"), share);
}

INSTANTIATE_TEST_SUITE_P(By, BertParity, testing::Combine(testing::Values("torch", "transformers"), testing::Bool()),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + (std::get<1>(one.param) ? "_Tied" : "_Untied");
                         });

}  // namespace
}  // namespace herd::models
