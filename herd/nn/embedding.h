// y = W[ids].   ids int64 (B, T)  ->  y (B, T, D);  W (V, D).
// Backward adds dy's rows straight into the flat gradient, in the order of the tokens. Keeps ids.
// Throws kBadConfig for an id outside [0, V).
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

at::Tensor embedding(const at::Tensor& ids, Parameter& weight);

// ids (R) -> y (R, D) where the rank has a part of the rows of W (ParameterSpec::spans): rows of ids that it has not
// are zero, so ranks' results sum up to the whole. Keeps which rows are its own, and their ids.
at::Tensor cut_embedding(const at::Tensor& ids_R, Parameter& weight);

}  // namespace herd::nn
