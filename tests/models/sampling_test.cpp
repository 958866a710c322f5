#include "herd/models/sampling.h"

#include <gtest/gtest.h>

#include <set>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/models/decoder.h"
#include "training_run_internal.h"

namespace herd::models {
namespace {

constexpr int64_t kVocabulary = 12, kContext = 8;

spec::RunFile::Model shape() {
  spec::RunFile::Model model;
  model.layers = 2, model.width = 32, model.heads = 4, model.context = kContext, model.vocab = kVocabulary;
  return model;
}

spec::RunFile::Model llama() {
  spec::RunFile::Model model = shape();
  model.kind = "llama", model.kv_heads = 2, model.rope_theta = 20;
  return model;
}

// The largest logit after `tokens`, by the whole forward pass without a cache.
int64_t greedy_without_cache(const Model& model, const std::vector<int64_t>& tokens) {
  nn::Tuple x = {at::tensor(tokens, at::kLong).unsqueeze(0)};
  for (const auto& block : model.blocks) x = nn::run_without_graph(*block, x, {});
  return x[0][0][-1].argmax().item<int64_t>();
}

TEST(Generate, GivesWhatTheWholeForwardPassGives_UntilTheContextIsFullAndBeyond) {
  for (const auto& model : {shape(), llama()}) {
    TrainingRun run(make_model(model));
    // Larger than any initialisation, so that positions matter.
    for (const auto& group : run.model().groups)
      group->weights().add_(at::arange(group->elements(), at::kFloat).mul_(0.7f).sin_(), 0.2);
    std::vector<int64_t> text = {3, 1, 4};
    const std::vector<int64_t> got = generate(run.model(), text, {.max_tokens = 12, .temperature = 0});
    size_t begin = 0;
    for (int64_t token : got) {
      if (text.size() - begin > kContext) begin = text.size() - kContext / 2;
      EXPECT_EQ(token, greedy_without_cache(run.model(), {text.begin() + static_cast<int64_t>(begin), text.end()}))
          << model.kind;
      text.push_back(token);
    }
    EXPECT_EQ(got.size(), 12u);
    EXPECT_GT(std::set<int64_t>(got.begin(), got.end()).size(), 1u);
  }
}

TEST(Generate, TakesTheMemoryOfTwoBlocksAndTheKeysAndValuesHoweverManyThereAre) {
  DeviceMemory::install();
  const auto taken = [](int64_t layers) {
    spec::RunFile::Model model = shape();
    model.layers = layers;
    model.context = 64;
    const TrainingRun run(make_model(model));
    const int64_t before = DeviceMemory::live_bytes();
    DeviceMemory::reset_peak();
    generate(run.model(), std::vector<int64_t>(60, 3), {.max_tokens = 2});
    return DeviceMemory::peak_bytes() - before;
  };
  const int64_t keys_and_values = 2 * 64 * shape().width * 4;  // of a layer, for the whole context
  EXPECT_LE(taken(9) - taken(2), 7 * keys_and_values);
}

TEST(Generate, SaysWhatItWasTaught) {
  TrainingRun run(make_model(shape()));
  const at::Tensor tokens = at::arange(9 * 4, at::kLong).remainder(kVocabulary).view({4, 9});  // each token plus one
  for (int step = 0; step < 150; ++step) {
    run.gradient(tokens.slice(1, 0, 8), tokens.slice(1, 1, 9), 1);
    run.step(1.0);
  }
  const std::vector<int64_t> prompt = {5};
  EXPECT_EQ(generate(run.model(), prompt, {.max_tokens = 5, .temperature = 0}), (std::vector<int64_t>{6, 7, 8, 9, 10}));
}

TEST(Generate, SeedDecidesAndTopKLimitsAndACallbackStops) {
  const TrainingRun run(make_model(shape()));
  const std::vector<int64_t> prompt = {2};
  const GenerateOptions options{.max_tokens = 40, .temperature = 5, .seed = 7};
  EXPECT_EQ(generate(run.model(), prompt, options), generate(run.model(), prompt, options));
  GenerateOptions other = options;
  other.seed = 8;
  EXPECT_NE(generate(run.model(), prompt, options), generate(run.model(), prompt, other));
  GenerateOptions one = options;
  one.top_k = 1;
  EXPECT_EQ(generate(run.model(), prompt, one), generate(run.model(), prompt, {.max_tokens = 40, .temperature = 0}));
  GenerateOptions stopped = options;
  stopped.on_token = [count = 0](int64_t) mutable { return ++count < 3; };
  EXPECT_EQ(generate(run.model(), prompt, stopped).size(), 3u);
  const std::vector<int64_t> sampled = generate(run.model(), prompt, options);
  EXPECT_GE(std::set<int64_t>(sampled.begin(), sampled.end()).size(), 5u);
}

TEST(PickToken, FollowsTheDistribution_AndItsCuts) {
  const at::Tensor logits = at::log(at::tensor({0.1, 0.6, 0.3}, at::kFloat));
  GenerateOptions options{.temperature = 1, .top_k = 0};
  EXPECT_EQ(pick_token(logits, options, 0.0), 1);
  EXPECT_EQ(pick_token(logits, options, 0.59), 1);
  EXPECT_EQ(pick_token(logits, options, 0.61), 2);
  EXPECT_EQ(pick_token(logits, options, 0.95), 0);
  options.top_k = 2;
  EXPECT_EQ(pick_token(logits, options, 0.999), 2);
  options.temperature = 0;
  EXPECT_EQ(pick_token(logits, options, 0.999), 1);
}

TEST(Generate, RefusesAnEmptyPromptAndNegativeNumbers) {
  const TrainingRun run(make_model(shape()));
  EXPECT_THROW(generate(run.model(), {}), Error);
  const std::vector<int64_t> prompt = {2};
  EXPECT_THROW(generate(run.model(), prompt, {.temperature = -1}), Error);
}

}  // namespace
}  // namespace herd::models
