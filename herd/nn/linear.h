// y = x W^T + b.   x (.., I)  ->  y (.., O);  W (O, I), b (O) or none.
// Backward writes dW and db straight into the flat gradient, dW += dy^T x by one GEMM; it allocates no weight gradient.
//   Forward takes 2*N*O*I FLOP for N rows, backward 4*N*O*I (2*N*O*I where x takes no gradient).  The graph keeps x.
// fp16 on CPU is multiplied in fp32, and results are rounded to 16 bits. Where gradients of bf16 are fp32, dW is
// computed in bf16, a piece of its rows at a time, and added. The parameters' group must outlive the graph (Graph holds
// it). Gradients must be attached in backward. Threads: one at a time.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias = nullptr);

// Computes gradient = beta * gradient + dy^T x, for dy (N, O), x (N, I); beta is 0 at the first contribution since
// begin_gradient(), then 1 (Parameter::take_beta). Several calls may add parts of a sum over rows.
void add_weight_gradient(Parameter& weight, const at::Tensor& dy, const at::Tensor& x);
// Does the same for a gradient of one matrix, which it overwrites or adds to.
void add_product(at::Tensor gradient, bool overwrites, const at::Tensor& dy, const at::Tensor& x);

}  // namespace herd::nn
