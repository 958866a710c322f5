#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "herd/kernels/adamw_kernel.h"
#include "herd/kernels/sgd_kernel.h"

namespace herd::kernels {
namespace {

constexpr int64_t kCount = 1003;
const std::vector<ElementRange> kDecay = {{0, 17}, {100, 101}, {513, 900}};

bool decayed(int64_t i) {
  for (const ElementRange& range : kDecay)
    if (i >= range.begin && i < range.end) return true;
  return false;
}

std::vector<float> random_floats(uint32_t seed, bool positive = false) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(positive ? 0.0f : -1.0f, 1.0f);
  std::vector<float> out(kCount);
  for (float& x : out) x = values(random);
  return out;
}

struct State {
  std::vector<float> w = random_floats(1), g = random_floats(2), m = random_floats(3), v = random_floats(4, true);
  bool operator==(const State&) const = default;
};

// Steps with the flat range cut at `cuts`, each shard in its own allocation, so alignments differ from the whole.
template <typename Step>
State in_shards(const std::vector<int64_t>& cuts, Step step) {
  State whole;
  for (size_t k = 0; k + 1 < cuts.size(); ++k) {
    const int64_t begin = cuts[k], end = cuts[k + 1];
    const auto cut = [&](std::vector<float>& x) { return std::vector<float>(x.begin() + begin, x.begin() + end); };
    State part{cut(whole.w), cut(whole.g), cut(whole.m), cut(whole.v)};
    step(part, begin, end - begin);
    std::copy(part.w.begin(), part.w.end(), whole.w.begin() + begin);
    std::copy(part.m.begin(), part.m.end(), whole.m.begin() + begin);
    std::copy(part.v.begin(), part.v.end(), whole.v.begin() + begin);
  }
  return whole;
}

const AdamWHyper kAdamW{.rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .t = 3};
const SgdHyper kSgd{.rate = 0.01, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
const float kFactor = 0.37f;

void adamw_part(State& x, int64_t offset, int64_t count) {
  adamw({x.w.data(), x.g.data(), x.m.data(), x.v.data(), count, offset}, kAdamW, kDecay, &kFactor);
}
void sgd_part(State& x, int64_t offset, int64_t count) {
  sgd({x.w.data(), x.g.data(), x.m.data(), count, offset}, kSgd, kDecay, &kFactor);
}

TEST(AdamW, IsTheEquationOfItsHeader) {
  const State before;
  const State after = in_shards({0, kCount}, adamw_part);
  for (int64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<size_t>(i);
    const double g = static_cast<double>(kFactor) * before.g[at];
    const double m = 0.9 * before.m[at] + 0.1 * g, v = 0.95 * before.v[at] + 0.05 * g * g;
    const double kept = before.w[at] * (decayed(i) ? 1 - 0.01 * 0.1 : 1.0);
    const double w =
        kept - 0.01 / (1 - std::pow(0.9, 3)) * m / (std::sqrt(v) / std::sqrt(1 - std::pow(0.95, 3)) + 1e-8);
    EXPECT_NEAR(after.m[at], m, 2e-7);
    EXPECT_NEAR(after.v[at], v, 2e-7);
    EXPECT_NEAR(after.w[at], w, 1e-6) << i;
  }
}

// Three steps, of which the last two leave the second moment and its correction as the first has left them.
TEST(AdamW, IsLinearInItsMomentum_AfterItsFreezeStep) {
  State x;
  std::fill(x.v.begin(), x.v.end(), 0.0f);
  const State before = x;
  std::vector<double> w(x.w.begin(), x.w.end()), m(x.m.begin(), x.m.end()), v(kCount);
  for (int64_t t = 1; t <= 3; ++t) {
    AdamWHyper hyper = kAdamW;
    hyper.t = t, hyper.freeze_step = 1;
    x.g = random_floats(static_cast<uint32_t>(10 + t));
    adamw({x.w.data(), x.g.data(), x.m.data(), x.v.data(), kCount, 0}, hyper, {}, nullptr);
    for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * x.g[i];
      if (t == 1) v[i] = 0.05 * x.g[i] * x.g[i];
      w[i] -= 0.01 / (1 - std::pow(0.9, t)) * m[i] / (std::sqrt(v[i] / 0.05) + 1e-8);
    }
  }
  for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) {
    EXPECT_NEAR(x.v[i], v[i], 1e-6 * v[i]);
    EXPECT_NEAR(x.w[i], w[i], 1e-5 * std::abs(w[i] - before.w[i]) + 1e-6) << i;
  }
}

TEST(AdamW, GivesTheSameBitsForAnySplitIntoShards) {
  const State whole = in_shards({0, kCount}, adamw_part);
  EXPECT_EQ(whole, in_shards({0, 1, 2, 5, 100, 333, 334, 777, kCount}, adamw_part));
  EXPECT_EQ(whole, in_shards({0, 501, kCount}, adamw_part));
  EXPECT_EQ(whole, in_shards({0, 0, 513, 1000, kCount, kCount}, adamw_part));
}

TEST(AdamW, ReadsTheFactorWhenItRuns) {
  State x;
  const float zero = 0.0f;
  std::fill(x.m.begin(), x.m.end(), 0.0f);
  const State before = x;
  adamw({x.w.data(), x.g.data(), x.m.data(), x.v.data(), kCount, 0}, kAdamW, {}, &zero);
  EXPECT_EQ(x.w, before.w);  // no gradient, no momentum, no decay
}

TEST(Sgd, IsTheEquationOfItsHeader) {
  const State before;
  const State after = in_shards({0, kCount}, sgd_part);
  for (int64_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<size_t>(i);
    const double g = static_cast<double>(kFactor) * before.g[at] + (decayed(i) ? 0.1 * before.w[at] : 0.0);
    const double m = 0.9 * before.m[at] + g;
    EXPECT_NEAR(after.m[at], m, 2e-7);
    EXPECT_NEAR(after.w[at], before.w[at] - 0.01 * (g + 0.9 * m), 2e-7);
  }
}

TEST(Sgd, GivesTheSameBitsForAnySplitIntoShards) {
  EXPECT_EQ(in_shards({0, kCount}, sgd_part), in_shards({0, 1, 2, 5, 100, 333, 334, 777, kCount}, sgd_part));
}

TEST(Sgd, NeedsNoMemoryWithoutMomentum) {
  State x;
  const State before;
  sgd({x.w.data(), x.g.data(), nullptr, kCount, 0}, {.rate = 0.5}, {});
  for (size_t i = 0; i < static_cast<size_t>(kCount); ++i) EXPECT_EQ(x.w[i], before.w[i] - 0.5f * before.g[i]);
}

}  // namespace
}  // namespace herd::kernels
