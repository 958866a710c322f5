#include "herd/data/masked_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace herd {
namespace {

struct MaskedRow {
  explicit MaskedRow(int64_t tokens) : inputs(static_cast<size_t>(tokens)), targets(static_cast<size_t>(tokens)) {}
  std::vector<int64_t> inputs, targets;
  SampleRow spans() { return {inputs, targets}; }
};

constexpr int64_t kVocabulary = 1000, kContext = 40, kMask = 1000;

MaskedRow read(const SampleSource& source, int64_t sample) {
  MaskedRow row(source.context());
  SampleRow spans = row.spans();
  source.read_row(sample, spans);
  return row;
}

std::unique_ptr<SampleSource> masked(int64_t tokens, uint64_t seed) {
  return masked_samples(random_samples(kVocabulary, kContext, 3),
                        {.tokens = tokens, .mask_token = kMask, .seed = seed});
}

TEST(MaskedSamples, PredictAsManyTokensOfEachSample_AndHideMostOfThem) {
  const auto plain = random_samples(kVocabulary, kContext, 3);
  const auto source = masked(6, 7);
  int64_t hidden = 0, kept = 0, replaced = 0, random_sum = 0;
  std::map<size_t, int> places;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    const MaskedRow original = read(*plain, sample), row = read(*source, sample);
    EXPECT_EQ(std::ranges::count_if(row.targets, [](int64_t target) { return target >= 0; }), 6);
    for (size_t t = 0; t < row.inputs.size(); ++t) {
      if (row.targets[t] < 0) {
        EXPECT_EQ(row.targets[t], kIgnoredTarget);
        EXPECT_EQ(row.inputs[t], original.inputs[t]);
        continue;
      }
      ++places[t];
      EXPECT_EQ(row.targets[t], original.inputs[t]);
      if (row.inputs[t] == kMask)
        ++hidden;
      else if (row.inputs[t] == original.inputs[t])
        ++kept;
      else
        ++replaced;
      EXPECT_LE(row.inputs[t], kMask);
      if (row.inputs[t] != kMask && row.inputs[t] != original.inputs[t]) random_sum += row.inputs[t];
    }
  }
  const double all = 6 * 2000;
  EXPECT_NEAR(static_cast<double>(hidden) / all, 0.8, 0.015);
  EXPECT_NEAR(static_cast<double>(kept) / all, 0.1, 0.01);
  EXPECT_NEAR(static_cast<double>(replaced) / all, 0.1, 0.01);
  EXPECT_NEAR(static_cast<double>(random_sum) / static_cast<double>(replaced), kVocabulary / 2, 40);  // 4.8 deviations
  ASSERT_EQ(places.size(), static_cast<size_t>(kContext));
  for (const auto& [place, times] : places) EXPECT_NEAR(times, 300, 80) << place;  // 4.7 deviations
  EXPECT_EQ(source->targets_of(5), 6);
}

TEST(MaskedSamples, AreAFunctionOfSeedAndSample) {
  const MaskedRow first = read(*masked(6, 7), 12);
  EXPECT_EQ(first.inputs, read(*masked(6, 7), 12).inputs);
  EXPECT_EQ(first.targets, read(*masked(6, 7), 12).targets);
  EXPECT_NE(first.targets, read(*masked(6, 8), 12).targets);
  const auto places = [](const MaskedRow& row) {
    std::set<size_t> out;
    for (size_t t = 0; t < row.targets.size(); ++t) {
      if (row.targets[t] >= 0) out.insert(t);
    }
    return out;
  };
  EXPECT_NE(places(first), places(read(*masked(6, 7), 13)));
}

TEST(MaskedSamples, MayPredictEveryToken) {
  const MaskedRow row = read(*masked(kContext, 7), 0);
  EXPECT_TRUE(std::ranges::all_of(row.targets, [](int64_t target) { return target >= 0; }));
}

}  // namespace
}  // namespace herd
