// y = W[ids].   ids int64 (B, T)  ->  y (B, T, D);  W (V, D).
// Backward adds dy's rows straight into the flat gradient, in the order of the tokens. Keeps ids.
// Throws kBadConfig for an id outside [0, V).
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

at::Tensor embedding(const at::Tensor& ids, Parameter& weight);

}  // namespace herd::nn
