#include "herd/nn/attention_with_dropout.h"

#include <gtest/gtest.h>

#include "herd/bridge/budget_allocator.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3, kTokens = 40, kHeadWidth = 8;

at::Tensor rows(double frequency, at::ScalarType dtype) {
  return wave({kBatch, kHeads, kTokens, kHeadWidth}, frequency).to(dtype);
}

struct Attended {
  at::Tensor y;
  std::vector<at::Tensor> gradients;
  int64_t kept = 0;  // bytes between the passes, y included
};

Attended attend(const AttentionDropout& options, at::ScalarType dtype = at::kFloat) {
  std::vector<at::Tensor> inputs;
  for (const double frequency : {0.31, 0.77, 1.3}) inputs.push_back(rows(frequency, dtype).requires_grad_());
  const int64_t before = DeviceMemory::live_bytes();
  Attended out;
  out.y = attention_with_dropout(inputs[0], inputs[1], inputs[2], options,
                                 {.training = true, .seed = 1, .step = 2, .samples = {7, 9}, .layer = 1});
  out.kept = DeviceMemory::live_bytes() - before;
  out.gradients = torch::autograd::grad({out.y}, inputs, {rows(1.9, dtype)});
  return out;
}

TEST(AttentionWithDropout, GivesTheSameBits_WhenItIsComputedAgain) {
  for (const bool causal : {false, true}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Attended kept = attend({causal, 0.3, false}, dtype), again = attend({causal, 0.3, true}, dtype);
      EXPECT_TRUE(at::equal(kept.y, again.y));
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(kept.gradients[i], again.gradients[i])) << i;
    }
  }
}

TEST(AttentionWithDropout, KeepsNoMatrixOfTokensByTokens_WhenItIsComputedAgain) {
  DeviceMemory::install();
  constexpr int64_t kOutput = kBatch * kHeads * kTokens * kHeadWidth * 4,
                    kMatrix = kBatch * kHeads * kTokens * kTokens * 4;
  EXPECT_GE(attend({true, 0.3, false}).kept, kOutput + 2 * kMatrix);
  EXPECT_EQ(attend({true, 0.3, true}).kept, kOutput);  // q, k and v are the caller's
}

TEST(AttentionWithDropout, SharesKeyHeadsAmongHeads_AsIfEachHadACopy) {
  const Context context{.training = true, .seed = 1, .step = 2, .samples = {7, 9}, .layer = 1};
  const at::Tensor q = wave({kBatch, 6, kTokens, kHeadWidth}, 0.31);
  const at::Tensor k = wave({kBatch, 2, kTokens, kHeadWidth}, 0.77), v = wave({kBatch, 2, kTokens, kHeadWidth}, 1.3);
  for (const bool again : {false, true}) {
    const std::vector<at::Tensor> shared = {q.clone().requires_grad_(), k.clone().requires_grad_(),
                                            v.clone().requires_grad_()};
    std::vector<at::Tensor> copied = shared;
    for (size_t i : {size_t{1}, size_t{2}}) copied[i] = shared[i].repeat_interleave(3, 1);
    const AttentionDropout options{true, 0.3, again};
    const at::Tensor a = attention_with_dropout(shared[0], shared[1], shared[2], options, context);
    const at::Tensor b = attention_with_dropout(copied[0], copied[1], copied[2], options, context);
    EXPECT_TRUE(at::allclose(a, b, 1e-5, 1e-6));
    const auto from_a = torch::autograd::grad({a}, shared, {wave(a.sizes(), 1.9)});
    const auto from_b = torch::autograd::grad({b}, shared, {wave(a.sizes(), 1.9)});
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(from_a[i], from_b[i], 1e-4, 1e-5)) << i;
  }
}

}  // namespace
}  // namespace herd::nn
