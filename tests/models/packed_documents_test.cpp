// A batch of packed sequences has the loss and the gradients of the same documents, each run alone.
#include <gtest/gtest.h>

#include "herd/models/decoder.h"
#include "herd/nn/documents.h"
#include "training_run_internal.h"

namespace herd::models {
namespace {

constexpr int64_t kRows = 2, kContext = 12, kIgnored = -100;
const std::vector<int64_t> kBegins = {0, 1, 6, 12, 21};  // the last 3 tokens are padding

class PackedDocuments : public testing::TestWithParam<std::tuple<const char*, bool, bool>> {
 protected:
  static spec::RunFile::Model shape() {
    const auto [kind, tied, few_keys] = GetParam();
    spec::RunFile::Model model{.layers = 3, .width = 32, .heads = 4, .ffn = 48, .context = kContext, .vocab = 50};
    model.kind = kind;
    model.norm = model.is_rotary() ? "rmsnorm" : "layernorm";
    model.kv_heads = few_keys ? 2 : 4;
    model.tie_embeddings = tied;
    if (model.is_moe()) model.experts = 4, model.top_k = 2, model.balance_loss = 0;  // which sees all tokens of a batch
    return model;
  }
};

double apart(const at::Tensor& a, const at::Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

TEST_P(PackedDocuments, TrainAsEachDocumentAlone) {
  const at::Tensor inputs = at::arange(kRows * kContext, at::kLong).mul(7).remainder(50).view({kRows, kContext});
  const at::Tensor targets = at::arange(kRows * kContext, at::kLong).mul(11).remainder(50).view({kRows, kContext});
  targets[1].narrow(0, 9, 3).fill_(kIgnored);
  const auto all = static_cast<double>(targets.numel());
  TrainingRun packed(make_model(shape())), alone(make_model(shape())), mixed(make_model(shape()));
  const double loss = packed.gradient(inputs, targets, 1, {.training = true, .document_begins = kBegins});
  double expected_loss = 0;
  at::Tensor expected = at::zeros_like(packed.gradients());
  for (int64_t row = 0; row < kRows; ++row) {
    for (const auto& [begin, count] : nn::documents_of(kBegins, row, kContext)) {
      if (targets[row][begin].item<int64_t>() == kIgnored) continue;
      const auto part = [&, begin = begin, count = count](const at::Tensor& t) {
        return t.narrow(0, row, 1).narrow(1, begin, count).contiguous();
      };
      const double share = static_cast<double>(count) / all;
      expected_loss += share * alone.gradient(part(inputs), part(targets), 1, {.training = true});
      expected.add_(alone.gradients(), share);
    }
  }
  EXPECT_NEAR(loss, expected_loss, 2e-6 * expected_loss);
  EXPECT_LT(apart(packed.gradients(), expected), 2e-6);
  mixed.gradient(inputs, targets, 1, {.training = true});
  EXPECT_GT(apart(mixed.gradients(), expected), 1e-2) << "documents that attend to each other are something else";
}

INSTANTIATE_TEST_SUITE_P(Kinds, PackedDocuments,
                         testing::Values(std::tuple("gpt", true, false), std::tuple("gpt", false, true),
                                         std::tuple("llama", false, true), std::tuple("llama", true, false),
                                         std::tuple("moe", false, true)));

}  // namespace
}  // namespace herd::models
