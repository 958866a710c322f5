// Normalises over the last dimension, of width D.
//   LayerNorm: y = (x - mean) / sqrt(var + eps) * gain + bias, with biased var; keeps x and two fp32 numbers a row for
//              backward.   Source: Ba et al. 2016, arXiv:1607.06450.
//   RMSNorm:   y = x / sqrt(mean(x^2) + eps) * gain; keeps x and one fp32 number a row.
//              Source: Zhang & Sennrich 2019, arXiv:1910.07467.
// Gradients of gain and bias go through autograd. REQUIRES x and gain of one type, fp32, bf16 or fp16.
// Threads: one at a time.
#pragma once

#include <utility>

#include "herd/nn/parameter.h"

namespace herd::nn {

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

struct NormStyle {
  NormKind kind = NormKind::kLayerNorm;
  double eps = 1e-5;
  bool has_bias() const { return kind == NormKind::kLayerNorm; }
};

// `bias` is null for RMSNorm.
at::Tensor norm(const NormStyle& style, const at::Tensor& x, Parameter& gain, Parameter* bias);

// Returns x + added, and the norm of it.
std::pair<at::Tensor, at::Tensor> add_and_norm(const NormStyle& style, const at::Tensor& x, const at::Tensor& added,
                                               Parameter& gain, Parameter* bias);

}  // namespace herd::nn
