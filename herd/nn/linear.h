// y = x W^T + b.   x (.., I)  ->  y (.., O);  W (O, I), b (O) or none.
// Backward writes dW and db straight into the flat gradient, dW += dy^T x by one GEMM; no weight gradient is allocated.
//   Forward 2*N*O*I FLOP for N rows, backward 4*N*O*I (2*N*O*I where x takes no gradient).  Keeps x.
// fp16 on CPU is multiplied in fp32, and what is 16-bit rounded. Where gradients of bf16 are fp32, dW is computed in
// bf16, a piece of its rows at a time, and added. The parameters' group must outlive the graph (Graph holds it).
// Gradients must be attached in backward.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias = nullptr);

// gradient = beta * gradient + dy^T x, for dy (N, O), x (N, I); beta as weight.take_beta() says. A part of a sum over
// rows may be given by several calls.
void add_weight_gradient(Parameter& weight, const at::Tensor& dy, const at::Tensor& x);

}  // namespace herd::nn
