#include "herd/optim/device_clip.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "herd/optim/clip.h"

namespace herd::optim {
namespace {

struct DeviceClip {
  at::Tensor norm = at::zeros({1}, at::kDouble), factor = at::zeros({1}, at::kFloat);
};

DeviceClip clip_of(const at::Tensor& sums, double max_norm, double scale, bool skips_overflow = false) {
  DeviceClip clip;
  clip_on_device(sums, max_norm, scale, skips_overflow, clip.norm, clip.factor);
  return clip;
}

// A tensor of the CPU has a table of kernels, too, whose arithmetic is that of clip_by_norm().
TEST(DeviceClip, HasTheNormAndTheFactorOfTheHost) {
  const at::Tensor sums = at::tensor({3.0, 0.25, 11.5}, at::kDouble);
  for (const double max_norm : {0.0, 0.5, 100.0}) {
    for (const double scale : {1.0, 1024.0}) {
      const DeviceClip clip = clip_of(sums, max_norm, scale);
      const Clip expected = clip_by_norm(14.75 / (scale * scale), max_norm);
      EXPECT_EQ(clip.norm.item<double>(), expected.norm);
      EXPECT_EQ(clip.factor.item<float>(), static_cast<float>(expected.factor / scale));
    }
  }
}

TEST(DeviceClip, LetsAStepPassWhoseGradientsOverflowed) {
  const at::Tensor sums = at::tensor({1.0, std::numeric_limits<double>::infinity()}, at::kDouble);
  EXPECT_EQ(clip_of(sums, 1.0, 2.0, /*skips_overflow=*/true).factor.item<float>(), -1.0f);
  EXPECT_EQ(clip_of(sums, 1.0, 2.0).factor.item<float>(), 0.5f);
}

}  // namespace
}  // namespace herd::optim
