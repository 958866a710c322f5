// Fused attention on a device has the bits of the CPU's, forward and from the sums of rows of which these keys are a
// part. The device's work runs late (tests/device).
#include "herd/bridge/flash_attention.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "tests/device/later_device.h"

namespace herd {
namespace {

constexpr int64_t kRows = 2, kQueries = 9, kHeadWidth = 12;

// Heads as layers have them: those of a token follow each other.
at::Tensor heads(int64_t count, int64_t tokens, double frequency, at::ScalarType type) {
  return at::arange(kRows * tokens * count * kHeadWidth, at::kDouble)
      .mul_(frequency)
      .sin_()
      .to(type)
      .view({kRows, tokens, count, kHeadWidth})
      .transpose(1, 2);
}

TEST(FlashAttention, HasTheBitsOfTheCpuOnADevice) {
  later::install(/*seed=*/3);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const auto& [H, K] : {std::pair(4, 4), std::pair(4, 2), std::pair(6, 1)}) {
      for (const int64_t L : {kQueries, int64_t{5}}) {
        const bool causal = L == kQueries && K != 1;
        const at::Tensor q = heads(H, kQueries, 0.37, type), k = heads(K, L, 0.71, type), v = heads(K, L, 0.23, type),
                         dy = heads(H, kQueries, 0.11, type);
        const auto there = [](const at::Tensor& x) { return x.to(later::device()); };
        const AttendedRows expected = flash_attention(q, k, v, causal),
                           rows = flash_attention(there(q), there(k), there(v), causal);
        EXPECT_TRUE(rows.out.is_privateuseone());
        EXPECT_TRUE(rows.out.cpu().equal(expected.out)) << type << " " << H << " " << K << " " << L;
        EXPECT_TRUE(rows.log_sum.cpu().equal(expected.log_sum)) << type << " " << H << " " << K << " " << L;
        // Of more keys than these: their rows have larger sums, and are other rows.
        const AttendedRows of_all = {expected.out * 0.5, expected.log_sum + 1};
        const AttentionGradients cpu = flash_attention_backward(dy, q, k, v, of_all, causal),
                                 device = flash_attention_backward(there(dy), there(q), there(k), there(v),
                                                                   {there(of_all.out), there(of_all.log_sum)}, causal);
        EXPECT_TRUE(device.dq.cpu().equal(cpu.dq)) << type << " " << H << " " << K << " " << L;
        EXPECT_TRUE(device.dk.cpu().equal(cpu.dk)) << type << " " << H << " " << K << " " << L;
        EXPECT_TRUE(device.dv.cpu().equal(cpu.dv)) << type << " " << H << " " << K << " " << L;
      }
    }
  }
}

}  // namespace
}  // namespace herd
