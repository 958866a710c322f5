#include "herd/kernels/philox_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace herd::kernels {
namespace {

using Words = std::vector<uint32_t>;

Words words(const PhiloxStream& stream, uint64_t first, int64_t count) {
  Words out(static_cast<size_t>(4 * count));
  philox_words(stream, first, count, out.data());
  return out;
}
std::vector<float> normals(uint64_t first, int64_t count, float scale = 1) {
  std::vector<float> out(static_cast<size_t>(4 * count));
  philox_normals({.key = {7, 9}}, first, count, scale, out.data());
  return out;
}

// Runs `body` on every instruction set that this machine and this build have.
template <typename Body>
void on_every_target(const Body& body) {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t one = targets & -targets;
    hwy::SetSupportedTargetsForTest(one);
    SCOPED_TRACE(hwy::TargetName(one));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Known answers published with the generator (Random123 kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  on_every_target([] {
    EXPECT_EQ(words({}, 0, 1), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(words({{~0u, ~0u}, ~0u, ~0u}, ~uint64_t{0}, 1), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(words({{0xa4093822, 0x299f31d0}, 0x13198a2e, 0x03707344}, 0x85a308d3243f6a88, 1),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  });
}

TEST(Philox, DrawsTheSame_HoweverARangeIsCut_AndOverTheCarryOfTheCounter) {
  const uint64_t first = 0xfffffff5;
  const PhiloxStream stream{{3, 4}, 5, 6};
  Words one_by_one;
  for (uint64_t i = 0; i < 41; ++i)
    for (const uint32_t word : words(stream, first + i, 1)) one_by_one.push_back(word);
  on_every_target([&] { EXPECT_EQ(words(stream, first, 41), one_by_one); });
}

TEST(PhiloxNormals, AreThoseOfBoxAndMuller_OnEveryInstructionSet) {
  constexpr int64_t kNumbers = 1 << 16;
  const auto from = words({.key = {7, 9}}, 3, kNumbers);
  std::vector<double> exact;
  for (size_t i = 0; i < from.size(); i += 2) {
    const double r = std::sqrt(-2 * std::log(((from[i] >> 8) + 1.0) / 16777216));
    const double t = 2 * std::numbers::pi * (from[i + 1] >> 8) / 16777216;
    exact.push_back(r * std::cos(t));
    exact.push_back(r * std::sin(t));
  }
  const auto expected = normals(3, kNumbers);
  on_every_target([&] {
    const auto drawn = normals(3, kNumbers);
    EXPECT_TRUE(drawn == expected);
    double worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) worst = std::max(worst, std::abs(drawn[i] - exact[i]));
    EXPECT_LT(worst, 1e-6);
  });
}

TEST(PhiloxNormals, HaveTheMomentsOfTheNormalDistribution) {
  constexpr double kSamples = 4 << 18;
  double sum = 0, squares = 0, fourth = 0;
  for (const float x : normals(0, 1 << 18, 0.5f)) {
    const double z = x / 0.5;
    sum += z, squares += z * z, fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / kSamples, 0, 5e-3);
  EXPECT_NEAR(squares / kSamples, 1, 7e-3);
  EXPECT_NEAR(fourth / kSamples, 3, 5e-2);
}

}  // namespace
}  // namespace herd::kernels
