// Writes initial values of one parameter, keyed by (seed, parameter name, element index). The index counts in the whole
// parameter, also where ranks share it. So a stage, a shard and the whole model build the same weights.
//   normal: element i is deviate i of the Philox stream of that key (herd/kernels/philox_stream.h), times the standard
//   deviation. zeros and ones fill with that number.
// Threads: torch's; pure.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

// Writes fp32 numbers, [n] and contiguous, to `out` of the same size and such a type.
void write_weights(const at::Tensor& values, const at::Tensor& out);

// Fills `out` with elements [begin, begin + out.numel()) of what the rank holds of the parameter, flattened. `out` is
// contiguous, of any floating type. bf16 values are upper halves of the fp32 ones, and int16 asks for the lower halves
// (bridge/split_float.h).
void write_initial_weights(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out);

}  // namespace herd::nn
