// Batches whose samples have other tokens in each micro-batch train as a plain loop of torch does, in any layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "herd/storage/metrics.h"
#include "herd/train/trainer.h"
#include "plain_loop.h"

namespace herd::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kVocabulary = 13, kModelWidth = 8, kTags = 4, kMostTokens = 9;
constexpr int kTokenSteps = 12;

// A tagger with attention: rows of words, pairs of words, both in one dimension, and a number for each sample.
Chain tagger() {
  Chain chain;
  chain
      .add(
          "words", {"ids", "mask"}, [] { return torch::nn::Embedding(kVocabulary, kModelWidth); },
          [](torch::nn::EmbeddingImpl& words, const Tensors& x) {
            return Tensors{words.forward(x[0]), x[1].unsqueeze(1).expand({-1, x[1].size(1), -1})};
          })
      .add(
          "attention", {"words", "words:1"}, [] { return torch::nn::Linear(kModelWidth, kModelWidth); },
          [](torch::nn::LinearImpl& keys, const Tensors& x) {
            const at::Tensor scores = x[0].matmul(keys.forward(x[0]).transpose(1, 2));
            const at::Tensor attended = scores.masked_fill(x[1].logical_not(), -1e9).softmax(-1).matmul(x[0]);
            return Tensors{(x[0] + attended).flatten(0, 1), x[1].select(1, 0).sum(1, true)};
          })
      .add("middle", {"attention"}, [] { return torch::nn::Linear(kModelWidth, kModelWidth); })
      .add(
          "loss", {"middle", "attention:1", "tags"}, [] { return torch::nn::Linear(kModelWidth, kTags); },
          [](torch::nn::LinearImpl& head, const Tensors& x) {
            const at::Tensor logits = head.forward(torch::tanh(x[0])) *
                                      (1 + 0.1 * x[1].unsqueeze(1)).expand({-1, x[2].size(1), 1}).flatten(0, 1);
            const auto options =
                torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).ignore_index(-1);
            return Tensors{torch::nn::functional::cross_entropy(logits, x[2].flatten(), options), (x[2] >= 0).sum()};
          });
  return chain;
}

int64_t length_of(int64_t sample) { return 1 + sample * 5 % kMostTokens; }

// Pads to the longest sample of those that are asked for, as a data loader does.
Batch sentences(const std::vector<int64_t>& samples) {
  const auto n = static_cast<int64_t>(samples.size());
  int64_t longest = 0, words = 0;
  for (const int64_t sample : samples) longest = std::max(longest, length_of(sample));
  at::Tensor ids = torch::zeros({n, longest}, torch::kLong), tags = torch::full({n, longest}, -1, torch::kLong);
  for (int64_t row = 0; row < n; ++row) {
    const int64_t sample = samples[static_cast<size_t>(row)];
    words += length_of(sample);
    for (int64_t t = 0; t < length_of(sample); ++t) {
      ids[row][t] = (sample * 7 + t * 3) % kVocabulary;
      tags[row][t] = (sample + t) % kTags;
    }
  }
  return {.tensors = {{"ids", ids}, {"mask", tags >= 0}, {"tags", tags}}, .count = words};
}

const TokenDimensions kSentenceTokens = {.dimensions = {{"ids", 1}, {"mask", 1}, {"tags", 1}}, .most = kMostTokens};

spec::RunFile tagger_run(const std::string& more = "") {
  return spec::parse_run_text(
      "[train]\nbatch = 7\nmicro_batch = 2\nsteps = 20\n[optimizer]\nlr = 1e-2\nschedule = \"constant\"\n" + more,
      "test");
}

struct TokenLayout {
  int ranks;
  const char* keys;
};

class ChainTokens : public testing::TestWithParam<TokenLayout> {};

TEST_P(ChainTokens, DifferBetweenMicroBatches_WithTheLossesOfAPlainLoop) {
  const auto [ranks, keys] = GetParam();
  const spec::RunFile run = tagger_run(keys);
  std::atomic<uint32_t> seen = 0;  // bit T: a micro-batch had T tokens
  const auto read = [&seen](const std::vector<int64_t>& samples) {
    Batch batch = sentences(samples);
    seen |= 1U << batch.tensors[0].second.size(1);
    return batch;
  };
  const ChainData data{.read = read, .tokens = kSentenceTokens};
  EXPECT_LT(most_apart(train_chain_in_threads(tagger(), data, run, ranks, kTokenSteps).losses,
                       plain_losses(tagger(), sentences, run, kTokenSteps)),
            1e-6)
      << keys;
  EXPECT_GE(std::popcount(seen.load()), 4);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ChainTokens,
    testing::Values(TokenLayout{1, ""}, TokenLayout{2, ""}, TokenLayout{3, "[strategy]\nzero = 3\n"},
                    TokenLayout{2, "[mesh]\npp = 2\n"},
                    TokenLayout{2, "[mesh]\npp = 2\n[strategy]\npipeline = \"interleaved\"\nstages_per_rank = 2\n"},
                    TokenLayout{4,
                                "[mesh]\npp = 2\n[strategy]\nzero = 3\nrecompute = \"full\"\n"
                                "offload_activations = \"host\"\n"}));

TEST(ChainTokens, DifferInAValidation_AndInARunWithItsPrediction) {
  const ChainData data{.read = sentences,
                       .samples = 40,
                       .read_validation = sentences,
                       .validation_samples = 16,
                       .tokens = kSentenceTokens};
  const TemporaryFolder folder;
  const auto train = [&](const std::string& name, int ranks, const std::string& keys) {
    spec::RunFile run = tagger_run(keys);
    run.train.steps = 4, run.train.eval_every = 2, run.train.eval_batches = 2;
    run.log.dir = folder.path(), run.log.name = name;
    run_inproc(ranks, [&](Communicator& comm) { Trainer(tagger(), data, run, comm).run(); });
    return read_metrics(folder / name / "metrics.jsonl").back();
  };
  const StepMetrics one = train("one", 1, ""), two = train("two", 2, "[mesh]\npp = 2\n");
  EXPECT_NEAR(*two.val_loss, *one.val_loss, 1e-6 * *one.val_loss);
  EXPECT_LE(one.device_bytes_peak, one.predicted_device_bytes_peak);
  EXPECT_GE(one.device_bytes_peak, one.predicted_device_bytes_peak * 9 / 10) << "some micro-batch has the most tokens";
}

std::string refusal_of_tokens(const Chain& chain, const ChainData& data) {
  try {
    train_chain_in_threads(chain, data, tagger_run(), 1, kTokenSteps);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  return "";
}

TEST(ChainTokens, NameBlockAndTensor_WhereASizeIsNoMultipleOfThem) {
  Chain chain;
  chain
      .add(
          "begin", {"ids", "mask", "tags"}, [] { return torch::nn::Embedding(kVocabulary, kModelWidth); },
          [](torch::nn::EmbeddingImpl& words, const Tensors& x) {
            const at::Tensor rows = words.forward(x[0]);
            return Tensors{rows, torch::cat({rows.narrow(1, 0, 1), rows}, 1)};
          })
      .add_function("loss", {"begin:1"}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(x[0].size(0))};
      });
  EXPECT_THAT(refusal_of_tokens(chain, {.read = sentences, .tokens = kSentenceTokens}),
              AllOf(HasSubstr("tensor 1 of block \"begin\""), HasSubstr("multiple of the tokens"),
                    HasSubstr("[2, 5, 8] for 4 tokens to [2, 10, 8] for 9 tokens")));
}

TEST(ChainTokens, NameTensorAndSize_WhereABatchHasOthersThanAreStated) {
  const auto with = [](const TokenDimensions& tokens) {
    return refusal_of_tokens(tagger(), {.read = sentences, .tokens = tokens});
  };
  EXPECT_THAT(with({.dimensions = {{"ids", 1}, {"mask", 1}, {"tags", 1}}, .most = 8}),
              AllOf(HasSubstr("dimension 1 of \"ids\""), HasSubstr("has size 9"), HasSubstr("states 1 to 8")));
  EXPECT_THAT(with({.dimensions = {{"ids", 1}, {"words", 1}}, .most = 9}), HasSubstr("dimension 1 of \"words\""));
  EXPECT_THAT(with({.dimensions = {{"ids", 0}}, .most = 9}), HasSubstr("dimension 0 counts samples"));
  EXPECT_THAT(with({.dimensions = {{"ids", 2}}, .most = 9}), HasSubstr("dimension 2 of \"ids\""));
  const auto crooked = [](const std::vector<int64_t>& samples) {
    Batch batch = sentences(samples);
    batch.tensors[1].second = batch.tensors[1].second.repeat({1, 2});
    return batch;
  };
  EXPECT_THAT(refusal_of_tokens(tagger(), {.read = crooked, .tokens = kSentenceTokens}),
              AllOf(HasSubstr("dimension 1 of \"mask\""), HasSubstr("that of \"ids\" has")));
  EXPECT_THAT(refusal_of_tokens(tagger(), {.read = sentences}), HasSubstr("ChainData::tokens"));
}

}  // namespace
}  // namespace herd::train
