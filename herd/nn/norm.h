// Normalisation over the last dimension, of width D.
//   LayerNorm: y = (x - mean) / sqrt(var + eps) * gain + bias     var biased.  Source: Ba et al. 2016,
//   arXiv:1607.06450. Keeps x and two fp32 numbers a row for backward.
//   RMSNorm:   y = x / sqrt(mean(x^2) + eps) * gain               Source: Zhang & Sennrich 2019,
//   arXiv:1910.07467. Keeps x and one fp32 number a row.
// Their small gradients go through autograd. On CPU only; x and gain are of one type, fp32, bf16 or fp16.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };

struct NormStyle {
  NormKind kind = NormKind::kLayerNorm;
  double eps = 1e-5;
  bool has_bias() const { return kind == NormKind::kLayerNorm; }
};

at::Tensor norm(const NormStyle& style, const at::Tensor& x, Parameter& gain, Parameter* bias);  // bias: if it has one

}  // namespace herd::nn
