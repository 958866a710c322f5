#include "herd/train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "herd/bridge/budget_allocator.h"
#include "herd/comm/inproc_world.h"
#include "herd/models/decoder.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::train {
namespace {

constexpr int64_t kVocabulary = 12, kContext = 8;

std::optional<double> loss_on(Communicator& comm, const EvaluateOptions& options, int64_t layers = 1,
                              int64_t* taken = nullptr) {
  spec::RunFile run;
  run.model.layers = layers, run.model.width = 16, run.model.heads = 2;
  run.model.context = kContext, run.model.vocab = kVocabulary;
  run.train.batch = options.batch, run.train.micro_batch = options.micro_batch;
  const spec::Layout layout = strategies::trainable_layout(run, comm.size());
  const models::Model model = models::make_model(run.model);
  const program::Program step =
      strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, comm.rank());
  runtime::FlatParameters parameters(model.groups, step, comm, {}, 1);
  const runtime::AxisGroups groups(comm, step);
  Evaluation evaluation(step, model.blocks, parameters, groups, {.width = run.model.width});
  const int64_t before = DeviceMemory::live_bytes();
  DeviceMemory::reset_peak();
  const auto loss = evaluation.run(*token_samples(random_samples(kVocabulary, kContext, 3)), comm, options);
  if (taken != nullptr) *taken = DeviceMemory::peak_bytes() - before;
  return loss ? std::optional(loss->loss) : std::nullopt;
}

std::optional<double> loss_over(int ranks, const EvaluateOptions& options) {
  std::vector<std::optional<double>> losses(static_cast<size_t>(ranks));
  run_inproc(ranks, [&](Communicator& comm) { losses[static_cast<size_t>(comm.rank())] = loss_on(comm, options); });
  for (const auto& loss : losses) EXPECT_EQ(loss, losses[0]) << "all ranks know the same";
  return losses[0];
}

TEST(Evaluate, GivesTheMeanOverAllTokens_HoweverTheyAreShared) {
  const std::optional<double> whole = loss_over(1, {.batches = 2, .batch = 5, .micro_batch = 5});
  ASSERT_TRUE(whole);
  EXPECT_NEAR(*whole, std::log(kVocabulary), 0.05) << "an untrained model guesses";
  for (const int ranks : {2, 3, 7})
    EXPECT_NEAR(*loss_over(ranks, {.batches = 2, .batch = 5, .micro_batch = 2}), *whole, 1e-6) << ranks;
  EXPECT_NE(*loss_over(1, {.batches = 3, .batch = 5, .micro_batch = 5}), *whole);
}

TEST(Evaluate, TakesTheMemoryOfTwoBlocksHoweverManyThereAre) {
  DeviceMemory::install();
  int64_t of_two = 0, of_nine = 0;
  run_inproc(1, [&](Communicator& comm) {
    loss_on(comm, {.batches = 1, .batch = 64, .micro_batch = 64}, 2, &of_two);
    loss_on(comm, {.batches = 1, .batch = 64, .micro_batch = 64}, 9, &of_nine);
  });
  EXPECT_GT(of_two, 64 * kContext * 16 * 4);  // an input at least
  EXPECT_EQ(of_nine, of_two);
}

TEST(Evaluate, BreaksOffOnAllRanks_WhereOneIsAskedToStop) {
  run_inproc(3, [&](Communicator& comm) {
    int batches = 0;
    const auto stop = [&] { return ++batches == 2 && comm.rank() == 1; };
    EXPECT_EQ(loss_on(comm, {.batches = 1 << 30, .batch = 3, .stop_requested = stop}), std::nullopt);
    EXPECT_EQ(batches, 2);
  });
}

}  // namespace
}  // namespace herd::train
