// Computes the feed-forward part of a layer.   x (.., D) -> y (.., D), hidden width F.
//   without gate:  y = down(gelu(up(x))), gelu by its tanh form or exact; keeps x, up and its gelu.
//                  Source: Hendrycks & Gimpel 2016, arXiv:1606.08415.
//   with gate:     y = down(silu(gate(x)) * up(x)), SwiGLU; keeps x, gate, its silu, up and the product; on a
//                  device not the silu, which backward computes again.
//                  Source: Shazeer 2020, arXiv:2002.05202.
// A rank that has a part of F has its rows of gate and up and its columns of down, and gives a partial sum. Threads:
// one at a time.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

struct FeedForwardParameters {
  Parameter* gate;  // (F, D) or none
  Parameter& up;    // (F, D)
  Parameter* up_bias;
  Parameter& down;  // (D, F)
  Parameter* down_bias;
  bool exact_gelu = false;
};

at::Tensor feed_forward(const at::Tensor& x, const FeedForwardParameters& parameters);

}  // namespace herd::nn
