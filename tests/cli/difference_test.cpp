#include "herd/cli/difference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_writer.h"
#include "tests/storage/checkpoint_fixture.h"
#include "tests/support/temporary_folder.h"

namespace herd::cli {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

class Checkpoints {
 public:
  std::string save(const Tensors& tensors) {
    const auto folder = new_checkpoint_folder(root_.path(), ++saved_, unsynced_files());
    std::vector<TensorPiece> shard;
    for (const auto& [name, values] : tensors) {
      const std::vector<int64_t> shape = {static_cast<int64_t>(values.size())};
      shard.push_back({name, DType::kF32, shape, whole_slice(shape), std::as_bytes(std::span(values))});
    }
    std::vector<Manifest> parts;
    parts.push_back(write_shard(folder, 0, shard, unsynced_files()));
    commit_checkpoint(folder, {.herd_version = "0.1.0", .step = saved_}, parts, unsynced_files());
    return folder;
  }
  Difference of(const Tensors& a, const Tensors& b, double lr_times_steps = 0) {
    return weight_difference(save(a), save(b), lr_times_steps);
  }

 private:
  TemporaryFolder root_;
  int64_t saved_ = 0;
};

const float kNaN = std::nanf(""), kInf = HUGE_VALF;

TEST(WeightDifference, IsRelativeToTheTensorsLargestValue_OrToWhatTheOptimizerMoves) {
  Checkpoints run;
  const Difference found = run.of({{"a", {1, -4}}, {"b", {8, 0}}}, {{"a", {1, -5}}, {"b", {8, 1}}});
  EXPECT_EQ(found.relative, 0.25);
  EXPECT_EQ(found.where, "a");
  EXPECT_EQ(run.of({{"a", {1, -4}}}, {{"a", {1, -5}}}, 10).relative, 0.1);
  EXPECT_EQ(run.of({{"a", {0, 0}}}, {{"a", {0, 0}}}).relative, 0);
  EXPECT_EQ(run.of({{"a", {1}}, {"a.exp_avg", {1}}}, {{"a", {1}}, {"a.exp_avg", {9}}}).relative, 0);
}

TEST(WeightDifference, IsWithinNoTolerance_WhereAWeightIsNotFinite) {
  Checkpoints run;
  for (const float bad : {kNaN, kInf}) {
    for (const auto& [a, b] :
         {std::pair<Tensors, Tensors>{{{"a", {1, bad, 2}}, {"b", {1}}}, {{"a", {1, 1, 2}}, {"b", {1}}}},
          {{{"a", {1, 1, 2}}, {"b", {1}}}, {{"a", {1, bad, 2}}, {"b", {1}}}},
          {{{"a", {bad}}, {"b", {1}}}, {{"a", {bad}}, {"b", {1}}}}}) {
      const Difference found = run.of(a, b);
      EXPECT_FALSE(found.relative <= 1e300) << found.relative;
      EXPECT_EQ(found.where, "a");
    }
  }
}

TEST(WeightDifference, IsInfinite_WhereATensorIsMissingOrHasAnotherShape_OrThereIsNone) {
  Checkpoints run;
  EXPECT_EQ(run.of({{"a", {1}}, {"b", {1}}}, {{"a", {1}}}).where, "b, which b lacks");
  EXPECT_EQ(run.of({{"a", {1}}}, {{"a", {1}}, {"c", {1}}}).where, "c, which a lacks");
  EXPECT_EQ(run.of({{"a", {1, 1}}}, {{"a", {1}}}).relative, HUGE_VAL);
  EXPECT_EQ(run.of({{"a.momentum", {1}}}, {{"a.momentum", {1}}}).relative, HUGE_VAL);
}

TEST(LossDifference, IsTheLargestOfAllSteps) {
  const Difference found = loss_difference({4, 2, 1}, {4, 2.5, 1.125});
  EXPECT_EQ(found.relative, 0.25);
  EXPECT_EQ(found.where, "step 2");
  EXPECT_EQ(loss_difference({1}, {1, 1}).relative, HUGE_VAL);
  EXPECT_EQ(loss_difference({}, {}).relative, HUGE_VAL);
}

TEST(LossDifference, IsWithinNoTolerance_WhereALossIsNotFinite) {
  const Difference found = loss_difference({1, std::nan(""), 1}, {1, 1, 1});
  EXPECT_FALSE(found.relative <= 1e300);
  EXPECT_EQ(found.where, "step 2");
  EXPECT_FALSE(loss_difference({HUGE_VAL}, {1}).relative <= 1e300);
}

}  // namespace
}  // namespace herd::cli
