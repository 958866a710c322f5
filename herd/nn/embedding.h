// y = W[ids].   ids int64 (B, T)  ->  y (B, T, D);  W (V, D).
// Backward adds dy's rows straight into the flat gradient, in the order of the tokens. The graph keeps ids. Throws
// kBadConfig for an id outside [0, V). Threads: one at a time.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

at::Tensor embedding(const at::Tensor& ids, Parameter& weight);

// Computes y (R, D) of ids (R) where ranks share the rows of W (ParameterSpec::spans). Rows of ids that other ranks
// have are zero, so ranks' results sum up to the whole. The graph keeps which rows are its own, and their ids.
at::Tensor vocabulary_parallel_embedding(const at::Tensor& ids_R, Parameter& weight);

// Adds row i of dy (N, D) to row ids[i] of the gradient. On a device each row is added up in fp32 in the order of i,
// and ids that the gradient has no row for are passed over; on the CPU that is an error.
void add_rows(const at::Tensor& gradient, const at::Tensor& ids, const at::Tensor& dy);

}  // namespace herd::nn
