// The models of examples/, built from their own source, have the losses of the same modules in a plain loop of torch.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>

#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "herd/launch/environment.h"
#include "herd/train/train_chain.h"
#include "plain_loop.h"

namespace herd::train::own_model {
#define main run_own_model
#include "examples/own_model.cpp"
#undef main
}  // namespace herd::train::own_model
namespace herd::train::two_towers {
#define main run_two_towers
#include "examples/two_towers.cpp"
#undef main
}  // namespace herd::train::two_towers
namespace herd::train::bert_lecture {
#define main run_bert_lecture
#include "examples/bert_lecture.cpp"
#undef main
}  // namespace herd::train::bert_lecture

namespace herd::train {
namespace {

constexpr int kExampleSteps = 20;

struct ExampleLayout {
  int ranks;
  const char* keys;
};
const ExampleLayout kOneRank = {1, ""}, kStagesOfShards = {4, "[mesh]\npp = 2\n[strategy]\nzero = 2\n"};

void expect_losses_of_a_plain_loop(const Chain& chain, const ReadBatch& read, int batch,
                                   const std::vector<ExampleLayout>& layouts) {
  const auto run = [&](const std::string& keys) {
    return spec::parse_run_text("[train]\nbatch = " + std::to_string(batch) +
                                    "\nmicro_batch = 2\nsteps = 20\n[optimizer]\nlr = 1e-3\nschedule = \"constant\"\n" +
                                    keys,
                                "test");
  };
  const std::vector<double> expected = plain_losses(chain, read, run(""), kExampleSteps);
  for (const auto& [ranks, keys] : layouts) {
    const Trained trained = train_chain_in_threads(chain, {.read = read}, run(keys), ranks, kExampleSteps);
    EXPECT_LT(most_apart(trained.losses, expected), 1e-6) << ranks << " ranks\n" << keys;
  }
}

TEST(ExampleModels, OwnModelHasTheLossesOfAPlainLoop) {
  expect_losses_of_a_plain_loop(own_model::make_chain(), own_model::read_images, 7,
                                {kOneRank, {2, "[strategy]\nzero = 3\nrecompute = \"full\"\n"}, kStagesOfShards});
}

TEST(ExampleModels, TwoTowersHaveTheLossesOfAPlainLoop) {
  expect_losses_of_a_plain_loop(two_towers::make_chain(), two_towers::read_clicks, 7,
                                {kOneRank, {2, "[mesh]\npp = 2\n"}, kStagesOfShards});
}

TEST(ExampleModels, TheBertOfTheLectureHasTheLossesOfAPlainLoop) {
  expect_losses_of_a_plain_loop(bert_lecture::make_chain(), bert_lecture::read_sequences, 3,
                                {kOneRank, kStagesOfShards});
}

}  // namespace
}  // namespace herd::train
