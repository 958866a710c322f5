// Initial values of one parameter, keyed by (seed, parameter name, element index): a stage, a shard or the whole model
// builds the same weights; of a parameter that ranks share, the index is that in the whole.
//   normal: element i is deviate i of the Philox stream of that key (herd/kernels/philox_stream.h), times the standard
//   deviation.
// Threads: torch's; pure.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

// Elements [begin, begin + out.numel()) of what the rank holds of the parameter, flattened, into `out`, contiguous, of
// any floating type. Those in bf16 are upper halves of those in fp32, and int16 asks for the lower halves
// (bridge/split_float.h).
void write_initial_weights(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out);

}  // namespace herd::nn
