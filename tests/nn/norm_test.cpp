#include "herd/nn/norm.h"

#include <gtest/gtest.h>

#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

TEST(Norm, FollowsTheEquationsOfItsHeader) {
  OwnedGroup g({{"gain", {16}, false, Init::kNormal, 1.0}, {"bias", {16}, false, Init::kNormal, 1.0}});
  Parameter &gain = g.group->find("gain"), &bias = g.group->find("bias");
  const at::Tensor x = wave({3, 16}, 0.9), d = x.to(at::kDouble);
  for (const double eps : {1e-5, 0.25}) {
    const at::Tensor mean = d.mean(-1, true), centred = d - mean;
    const at::Tensor layer = centred / (centred.square().mean(-1, true) + eps).sqrt() * gain.value() + bias.value();
    const at::Tensor rms = d / (d.square().mean(-1, true) + eps).sqrt() * gain.value();
    EXPECT_TRUE(at::allclose(norm({NormKind::kLayerNorm, eps}, x, gain, &bias).to(at::kDouble), layer, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(norm({NormKind::kRmsNorm, eps}, x, gain, nullptr).to(at::kDouble), rms, 1e-5, 1e-6));
  }
}

}  // namespace
}  // namespace herd::nn
