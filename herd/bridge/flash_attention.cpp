#include "herd/bridge/flash_attention.h"

#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward.h>
#include <ATen/ops/constant_pad_nd.h>

#include <array>
#include <cmath>
#include <limits>

namespace herd {
namespace {

// CUDA's kernels take heads whose width is a multiple of 8 elements. Flash attention takes 16 bits and 256 elements at
// most; the memory-efficient one any, but as many key heads as query heads, and sums padded to its block of queries.
constexpr int64_t kWidthOfCuda = 8, kWidestOfFlash = 256, kBlockOfSums = 32;

bool takes_flash(const at::Tensor& q) { return q.element_size() == 2 && q.size(3) <= kWidestOfFlash; }

double scale_of(const at::Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(3))); }

// Returns x (B, H, S, d) with zeros behind each head.
at::Tensor wide(const at::Tensor& x) {
  const int64_t d = x.size(3), more = (d + kWidthOfCuda - 1) / kWidthOfCuda * kWidthOfCuda - d;
  return more == 0 ? x : at::constant_pad_nd(x, {0, more});
}

// Returns keys or values (B, K, L, d) of each of H heads, and the sum of gradients of these.
at::Tensor of_each_head(const at::Tensor& x, int64_t H) {
  const int64_t K = x.size(1);
  return K == H ? x : x.unsqueeze(2).expand({-1, -1, H / K, -1, -1}).flatten(1, 2);
}
at::Tensor of_key_heads(const at::Tensor& dx, int64_t K) {
  return K == dx.size(1) ? dx : dx.unflatten(1, {K, -1}).sum(2);
}

// Returns x with the heads of a token following each other, as the memory-efficient kernel reads outputs.
at::Tensor by_tokens(const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); }

AttendedRows attention_of_cuda(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  const int64_t H = q.size(1), S = q.size(2), d = q.size(3);
  if (takes_flash(q)) {
    const auto result =
        at::_scaled_dot_product_flash_attention(wide(q), wide(k), wide(v), 0.0, causal, false, scale_of(q));
    return {std::get<0>(result).narrow(3, 0, d), std::get<1>(result)};
  }
  const auto result = at::_scaled_dot_product_efficient_attention(
      wide(q), of_each_head(wide(k), H), of_each_head(wide(v), H), {}, true, 0.0, causal, scale_of(q));
  return {std::get<0>(result).narrow(3, 0, d), std::get<1>(result).narrow(2, 0, S)};
}

AttentionGradients backward_of_cuda(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttendedRows& rows, bool causal) {
  const int64_t H = q.size(1), K = k.size(1), S = q.size(2), d = q.size(3);
  const at::Tensor none;  // what only dropout, masks and sequences of several lengths have
  if (takes_flash(q)) {
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
        wide(dy), wide(q), wide(k), wide(v), wide(rows.out), rows.log_sum.contiguous(), none, none, S, k.size(2), 0.0,
        causal, none, none, scale_of(q));
    return {dq.narrow(3, 0, d), dk.narrow(3, 0, d), dv.narrow(3, 0, d)};
  }
  const int64_t padding = (S + kBlockOfSums - 1) / kBlockOfSums * kBlockOfSums - S;
  const at::Tensor log_sum =
      at::constant_pad_nd(rows.log_sum, {0, padding}, std::numeric_limits<double>::infinity()).contiguous();
  const auto [dq, dk, dv, dmask] = at::_scaled_dot_product_efficient_attention_backward(
      wide(dy), wide(q), of_each_head(wide(k), H), of_each_head(wide(v), H), none, by_tokens(wide(rows.out)), log_sum,
      none, none, 0.0, {true, true, true, false}, causal, scale_of(q));
  return {dq.narrow(3, 0, d), of_key_heads(dk, K).narrow(3, 0, d), of_key_heads(dv, K).narrow(3, 0, d)};
}

}  // namespace

AttendedRows flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  if (q.is_cuda()) return attention_of_cuda(q, k, v, causal);
  if (!q.is_cpu()) {
    const auto result = at::_scaled_dot_product_fused_attention_overrideable(q, k, v, {}, 0.0, causal);
    return {std::get<0>(result), std::get<1>(result)};
  }
  auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
  return {out, log_sum};
}

AttentionGradients flash_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const AttendedRows& rows, bool causal) {
  if (q.is_cuda()) return backward_of_cuda(dy, q, k, v, rows, causal);
  if (!q.is_cpu()) {
    const at::Tensor none;
    const auto result = at::_scaled_dot_product_fused_attention_overrideable_backward(
        dy, q, k, v, none, {true, true, true, false}, rows.out, rows.log_sum, none, none, q.size(2), k.size(2), 0.0,
        causal, none, none);
    return {std::get<0>(result), std::get<1>(result), std::get<2>(result)};
  }
  auto [dq, dk, dv] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(dy, q, k, v, rows.out, rows.log_sum, 0.0, causal);
  return {dq, dk, dv};
}

}  // namespace herd
