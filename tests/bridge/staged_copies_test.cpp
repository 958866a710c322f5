// On the device "later" (tests/device), which reads page-locked memory long after the host has gone on.
#include "herd/bridge/staged_copies.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "tests/device/later_device.h"

namespace herd {
namespace {

TEST(StagedCopies, HoldWhatTheHostHadWithoutAWait_ThoughItWritesOverItAtOnce) {
  later::install(/*seed=*/3);
  StagedCopies copies(later::device());
  for (int round = 0; round < 3; ++round) {
    const int64_t before = later::synchronisations();
    std::vector<at::Tensor> there, expected;
    for (const int64_t size : {3, 70'000, 0, 70'000, 200'000, 5}) {
      const at::Tensor values = at::arange(size, at::kLong) + round;
      expected.push_back(values.clone());
      there.push_back(copies.copy(values));
      values.fill_(-1);
    }
    const at::Tensor turned = at::arange(6, at::kFloat).view({2, 3}).t();
    expected.push_back(turned.clone()), there.push_back(copies.copy(turned));
    EXPECT_EQ(later::synchronisations(), before);
    for (size_t i = 0; i < there.size(); ++i) {
      EXPECT_TRUE(there[i].is_contiguous() && there[i].is_privateuseone());
      EXPECT_TRUE(at::equal(there[i].cpu(), expected[i])) << "round " << round << " copy " << i;
    }
    copies.reuse();
  }
}

TEST(StagedCopies, UseTheirMemoryAgain) {
  later::install(/*seed=*/3);
  StagedCopies copies(later::device());
  const at::Tensor first = copies.copy(at::ones({4}));
  copies.reuse();  // too early: the device has not read the first copy yet
  const at::Tensor second = copies.copy(at::ones({4}) * 2);
  EXPECT_EQ(first.sum().item<float>(), 8);
  EXPECT_EQ(second.sum().item<float>(), 8);
}

}  // namespace
}  // namespace herd
