#include "herd/nn/norm.h"

#include <gtest/gtest.h>

#include "herd/bridge/budget_allocator.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

std::vector<ParameterSpec> gain_and_bias(int64_t width) {
  return {{"gain", {width}, false, Init::kNormal, 1.0}, {"bias", {width}, false, Init::kNormal, 1.0}};
}

TEST(Norm, FollowsTheEquationsOfItsHeader) {
  OwnedGroup g(gain_and_bias(16));
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

struct Gradients {
  at::Tensor y, dx, dgain;
};

// torch's, in fp64.
Gradients exact_gradients(const at::Tensor& values, const at::Tensor& gain, const at::Tensor& dy) {
  at::Tensor x = values.to(at::kDouble).requires_grad_(), g = gain.detach().to(at::kDouble).requires_grad_();
  const at::Tensor y = at::rms_norm(x, {gain.numel()}, g, 1e-5);
  y.backward(dy.to(at::kDouble));
  return {y.detach(), x.grad(), g.grad()};
}

TEST(RmsNorm, AndItsGradientsEqualTorchsWithinRounding_InEveryType) {
  for (const auto& [type, rounding] : {std::pair{at::kFloat, 2e-6}, {at::kBFloat16, 0x1p-7}, {at::kHalf, 0x1p-10}}) {
    for (const int64_t rows : {1, 2, 15, 16, 17, 100}) {
      const int64_t width = 100;
      OwnedGroup g(gain_and_bias(width), 11, {.dtype = type});
      Parameter& gain = g.group->find("gain");
      const at::Tensor x = wave({rows, width}, 0.9).to(type).requires_grad_(), dy = wave({rows, width}, 1.7).to(type);
      const Gradients torchs = exact_gradients(x.detach(), gain.value(), dy);
      const at::Tensor y = norm({NormKind::kRmsNorm}, x, gain, nullptr);
      gain.value().mutable_grad() = at::Tensor();
      y.backward(dy);
      const auto expect_close = [&](const at::Tensor& own, const at::Tensor& torch, const char* what) {
        ASSERT_EQ(own.scalar_type(), type);
        const double scale = torch.abs().max().item<double>();
        EXPECT_LE((own.to(at::kDouble) - torch).abs().max().item<double>(), rounding * scale)
            << what << " of " << rows << " rows in " << type;
      };
      expect_close(y.detach(), torchs.y, "y");
      expect_close(x.grad(), torchs.dx, "dx");
      expect_close(gain.value().grad(), torchs.dgain, "dgain");
    }
  }
}

TEST(Norm, OfAnyKindKeepsItsInputAndItsNumbersOfARow_AndMakesNoFp32Copies) {
  constexpr int64_t kRows = 512, kWidth = 256;
  DeviceMemory::install();
  for (const NormKind kind : {NormKind::kRmsNorm, NormKind::kLayerNorm}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      OwnedGroup g(gain_and_bias(kWidth), 11, {.dtype = type});
      Parameter &gain = g.group->find("gain"), &bias = g.group->find("bias");
      const at::Tensor x = wave({kRows, kWidth}, 0.9).to(type).requires_grad_();
      const auto bytes = static_cast<int64_t>(x.nbytes()), numbers = kRows * (kind == NormKind::kRmsNorm ? 4 : 8);
      const int64_t before = DeviceMemory::live_bytes();
      DeviceMemory::reset_peak();
      at::Tensor y = norm({kind}, x, gain, kind == NormKind::kRmsNorm ? nullptr : &bias);
      EXPECT_LE(DeviceMemory::live_bytes() - before, bytes + numbers) << "kept";
      EXPECT_LE(DeviceMemory::peak_bytes() - before, bytes + numbers + bytes / 8) << "forward";
      const at::Tensor dy = wave({kRows, kWidth}, 1.7).to(type);
      const int64_t then = DeviceMemory::live_bytes();
      DeviceMemory::reset_peak();
      y.backward(dy);
      EXPECT_LE(DeviceMemory::peak_bytes() - then, bytes + bytes / 2) << "dx, and little else";
      gain.value().mutable_grad() = at::Tensor();
      bias.value().mutable_grad() = at::Tensor();
    }
  }
}

}  // namespace
}  // namespace herd::nn
