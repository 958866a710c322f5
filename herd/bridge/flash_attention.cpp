#include "herd/bridge/flash_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

namespace herd {

AttendedRows flash_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
  return {out, log_sum};
}

AttentionGradients flash_attention_backward(const at::Tensor& dy, const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v, const AttendedRows& rows, bool causal) {
  auto [dq, dk, dv] =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(dy, q, k, v, rows.out, rows.log_sum, 0.0, causal);
  return {dq, dk, dv};
}

}  // namespace herd
