// Chains whose modules draw random numbers or begin with weights of their own, and ranks whose micro-batch has no
// sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "herd/comm/inproc_world.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/metrics.h"
#include "herd/train/trainer.h"
#include "plain_loop.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

constexpr int64_t kPassIn = 6, kPassWidth = 16, kPassClasses = 5, kPassBatch = 9;
constexpr int kPassSteps = 8;

struct PassLayout {
  int ranks;
  std::string keys;
};

at::Tensor cross_entropy_of(const at::Tensor& logits, const at::Tensor& labels) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

// Dropout inside a module, as a block of its own, and in the loss.
Chain dropping_chain(double share) {
  Chain chain;
  chain.add("in", {"points"}, [] { return torch::nn::Linear(kPassIn, kPassWidth); })
      .add("drop", {}, [share] { return torch::nn::Dropout(share); })
      .add(
          "middle", {}, [] { return torch::nn::Linear(kPassWidth, kPassWidth); },
          [share](torch::nn::LinearImpl& linear, const Tensors& x) {
            return torch::dropout(torch::relu(linear.forward(x[0])), share, /*train=*/true);
          })
      .add(
          "loss", {"middle", "labels"}, [] { return torch::nn::Linear(kPassWidth, kPassClasses); },
          [share](torch::nn::LinearImpl& head, const Tensors& x) {
            const at::Tensor logits = head.forward(torch::dropout(x[0], share, /*train=*/true));
            return Tensors{cross_entropy_of(logits, x[1]), torch::tensor(x[1].size(0))};
          });
  return chain;
}

// Positive numbers, so that a logarithm of them is finite.
Batch positive_points(const std::vector<int64_t>& samples) {
  const auto n = static_cast<int64_t>(samples.size());
  at::Tensor x = torch::empty({n, kPassIn}), labels = torch::empty({n}, torch::kLong);
  for (int64_t row = 0; row < n; ++row) {
    const int64_t sample = samples[static_cast<size_t>(row)];
    for (int64_t i = 0; i < kPassIn; ++i) x[row][i] = 1.5 + std::sin(static_cast<double>(sample * 7 + i * 3));
    labels[row] = (sample * 3 + sample / 4) % kPassClasses;
  }
  return {.tensors = {{"points", x}, {"labels", labels}}};
}

spec::RunFile passes_run(const std::string& more = "") {
  return spec::parse_run_text("[train]\nbatch = " + std::to_string(kPassBatch) +
                                  "\nmicro_batch = 2\nsteps = 8\n[optimizer]\nlr = 1e-2\nschedule = \"constant\"\n" +
                                  more,
                              "test");
}

// A pass that is computed again draws what the first one drew, to the bit.
TEST(ChainDropout, DrawsTheSameInPassesThatAreComputedAgain) {
  const auto losses = [](double share, int ranks, const std::string& keys) {
    return train_chain_in_threads(dropping_chain(share), {.read = positive_points}, passes_run(keys), ranks, kPassSteps)
        .losses;
  };
  const auto dropped = losses(0.5, 1, ""), whole = losses(0, 1, "");
  EXPECT_GT(most_apart(dropped, whole), 1e-3) << "nothing was dropped";
  for (const auto& [ranks, layout] : {PassLayout{1, "[strategy]\n"}, PassLayout{2, "[strategy]\nzero = 3\n"},
                                      PassLayout{2, "[mesh]\npp = 2\n[strategy]\n"}}) {
    const auto expected = losses(0.5, ranks, layout);
    for (const char* recompute : {"recompute = \"full\"\n", "recompute = \"every:2\"\n", "recompute = \"sqrt\"\n",
                                  "recompute = \"full\"\noffload_activations = \"host\"\n"})
      EXPECT_EQ(losses(0.5, ranks, layout + recompute), expected) << layout << recompute;
  }
}

// Each micro-batch, step and block draws numbers of its own, and what the program itself draws is not moved.
TEST(ChainDropout, DrawsAnewForEachMicroBatchAndStep_AndLeavesTheProgramsGenerator) {
  std::vector<at::Tensor> masks;
  Chain chain;
  chain.add("in", {"points"}, [] { return torch::nn::Linear(kPassIn, kPassWidth); })
      .add_function("drop", {},
                    [&masks](const Tensors& x) {
                      const at::Tensor mask = torch::dropout(torch::ones({1, 64}), 0.5, /*train=*/true);
                      if (at::GradMode::is_enabled()) masks.push_back(mask);
                      return x[0] * mask.mean();
                    })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].square().sum(), torch::tensor(x[0].size(0))};
      });
  const auto source = chain_source(chain, {.read = positive_points});
  const spec::RunFile run = completed(*source, passes_run());
  masks.clear();
  torch::manual_seed(7);
  train_in_threads(run, 1, 2, {}, source);
  const at::Tensor after = torch::rand({4});
  torch::manual_seed(7);
  EXPECT_TRUE(after.equal(torch::rand({4})));
  ASSERT_EQ(masks.size(), 10U) << "five micro-batches in each of two steps";
  for (size_t i = 0; i < masks.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(masks[i].equal(masks[j])) << i << " and " << j;
  }
}

TEST(ChainDropout, DrawsOnWhereARunIsResumed) {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& name) {
    spec::RunFile run = passes_run("[mesh]\npp = 2\n[strategy]\nrecompute = \"full\"\n[checkpoint]\nevery = 4\n");
    run.log.dir = folder.path(), run.log.name = name;
    run_inproc(2, [&](Communicator& comm) {
      Trainer(dropping_chain(0.5), {.read = positive_points, .samples = 12}, run, comm).run();
    });
    std::vector<double> losses;
    for (const StepMetrics& step : read_metrics(folder.path() / name / "metrics.jsonl")) losses.push_back(step.loss);
    return losses;
  };
  const std::vector<double> whole = train("run");
  ASSERT_EQ(whole.size(), static_cast<size_t>(kPassSteps));
  std::filesystem::remove_all(folder.path() / "run" / "checkpoints" / checkpoint_folder_name(kPassSteps));
  EXPECT_EQ(train("run"), whole);
}

// A micro-batch without samples runs the first sample of the batch in their place. Here that row alone, and no row of a
// whole micro-batch, makes the logarithm of 0 and 0 / 0: times 0 it would be NaN in every gradient.
TEST(ChainWithoutSamples, GivesZero_WhateverTheRowInTheirPlaceMakes) {
  std::atomic<int> stood_in{0};
  const ReadBatch read = [&stood_in](const std::vector<int64_t>& samples) {
    Batch batch = positive_points(samples);
    if (samples.size() > 1 || samples[0] % kPassBatch != 0) return batch;
    ++stood_in;
    batch.tensors[0].second.zero_();
    return batch;
  };
  Chain chain;
  chain
      .add(
          "in", {"points"}, [] { return torch::nn::Linear(torch::nn::LinearOptions(kPassIn, kPassWidth).bias(false)); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) {
            const at::Tensor y = linear.forward(x[0]);
            return Tensors{y.square().log(), y / y.norm(2, 1, true)};
          })
      .add(
          "middle", {"in", "in:1"}, [] { return torch::nn::Linear(kPassWidth, kPassWidth); },
          [](torch::nn::LinearImpl& linear, const Tensors& x) { return torch::tanh(linear.forward(x[0] + x[1])); })
      .add(
          "loss", {"middle", "labels"}, [] { return torch::nn::Linear(kPassWidth, kPassClasses); },
          [](torch::nn::LinearImpl& head, const Tensors& x) {
            return Tensors{cross_entropy_of(head.forward(x[0]), x[1]), torch::tensor(x[1].size(0))};
          });
  const std::vector<double> expected = plain_losses(chain, read, passes_run(), kPassSteps);
  EXPECT_GT(expected.front(), expected.back());
  for (const auto& [ranks, keys] : {PassLayout{2, ""}, PassLayout{2, "[strategy]\nzero = 3\nrecompute = \"full\"\n"},
                                    PassLayout{4, "[strategy]\nzero = 2\n"}, PassLayout{4, "[mesh]\npp = 2\n"},
                                    PassLayout{4, "[mesh]\npp = 2\n[strategy]\npipeline = \"zero_bubble_h1\"\n"}}) {
    stood_in = 0;
    const Trained trained = train_chain_in_threads(chain, {.read = read}, passes_run(keys), ranks, kPassSteps);
    EXPECT_LT(most_apart(trained.losses, expected), 2e-6) << ranks << " " << keys;
    for (const double norm : trained.norms) EXPECT_TRUE(std::isfinite(norm)) << ranks << " " << keys;
    EXPECT_GE(stood_in, kPassSteps) << ranks << " " << keys;
  }
}

// The weights of a module that torch has saved, in every layout alike.
TEST(ChainWeights, BeginAsAFactoryLoadsThem) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "in.pt";
  torch::nn::Linear saved(kPassIn, kPassWidth);
  saved->weight.set_data(torch::linspace(-1, 1, kPassIn * kPassWidth).view({kPassWidth, kPassIn}));
  torch::save(saved, file);
  const auto make = [&file](bool loads) {
    Chain chain;
    chain
        .add("in", {"points"},
             [&file, loads] {
               torch::nn::Linear linear(kPassIn, kPassWidth);
               if (loads) torch::load(linear, file);
               return linear;
             })
        .add_function("tanh", {}, [](const Tensors& x) { return torch::tanh(x[0]); })
        .add(
            "loss", {"tanh", "labels"}, [] { return torch::nn::Linear(kPassWidth, kPassClasses); },
            [](torch::nn::LinearImpl& head, const Tensors& x) {
              return Tensors{cross_entropy_of(head.forward(x[0]), x[1]), torch::tensor(x[1].size(0))};
            });
    return chain;
  };
  const std::vector<double> expected = plain_losses(make(true), positive_points, passes_run(), kPassSteps);
  EXPECT_GT(most_apart(plain_losses(make(false), positive_points, passes_run(), kPassSteps), expected), 1e-3);
  for (const auto& [ranks, keys] :
       {PassLayout{1, ""}, PassLayout{2, "[strategy]\nzero = 3\n"}, PassLayout{2, "[mesh]\npp = 2\n"}})
    EXPECT_LT(
        most_apart(
            train_chain_in_threads(make(true), {.read = positive_points}, passes_run(keys), ranks, kPassSteps).losses,
            expected),
        2e-6)
        << keys;
}

// All batches are alike, so a run goes on from another's weights with the loss that the other's next step would have.
TEST(ChainWeights, BeginAsARunInAnotherLayoutHasSavedThem) {
  const TemporaryFolder folder;
  const ReadBatch alike = [](std::vector<int64_t> samples) {
    for (int64_t& sample : samples) sample %= kPassBatch;
    return positive_points(samples);
  };
  const Chain chain = dropping_chain(0);
  const auto saved = [&](const std::string& keys, int ranks, int64_t steps) {
    spec::RunFile run = passes_run(keys);
    run.train.steps = steps, run.log.dir = folder.path(), run.log.name = "saved";
    run_inproc(ranks, [&](Communicator& comm) { Trainer(chain, {.read = alike}, run, comm).run(); });
    return read_metrics(folder.path() / "saved" / "metrics.jsonl");
  };
  saved("[mesh]\npp = 2\n[strategy]\nzero = 1\n", 4, 5);
  const std::string weights = "[model]\nweights = \"" + (folder.path() / "saved").string() + "\"\n";
  std::vector<std::vector<double>> losses;
  for (const auto& [ranks, keys] :
       {PassLayout{1, ""}, PassLayout{2, "[strategy]\nzero = 3\n"}, PassLayout{3, "[mesh]\npp = 3\n"}})
    losses.push_back(
        train_chain_in_threads(chain, {.read = alike}, passes_run(weights + keys), ranks, kPassSteps).losses);
  EXPECT_LT(most_apart(losses[1], losses[0]), 2e-6);
  EXPECT_LT(most_apart(losses[2], losses[0]), 2e-6);
  const std::vector<StepMetrics> steps = saved("", 1, 6);
  EXPECT_NEAR(losses[0].front(), steps.back().loss, 2e-6 * steps.back().loss);
  EXPECT_LT(losses[0].front(), 0.99 * steps.front().loss);
}

}  // namespace
}  // namespace herd::train
