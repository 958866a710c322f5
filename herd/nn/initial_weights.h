// Initial values of one parameter, keyed by (seed, parameter name, element index): a stage, a shard or the whole model
// builds the same weights.
//   normal: Box-Muller on Philox words. Elements 2i and 2i+1 are s*r*cos(t) and s*r*sin(t), with r = sqrt(-2 ln u),
//   t = 2 pi v, where u in (0, 1] and v in [0, 1) come from words (2i mod 4) and (2i mod 4) + 1 of counter i / 2.
// Source: Box & Muller 1958, doi:10.1214/aoms/1177706645.   Threads: pure.
#pragma once

#include "herd/nn/parameter.h"

namespace herd::nn {

// Elements [begin, begin + out.numel()) of the flattened parameter into `out`, contiguous, any floating dtype.
void write_initial_weights(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out);

}  // namespace herd::nn
