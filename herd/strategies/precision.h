// Precision of weights, activations and gradients. It needs no rewrite: values of the step before any rewrite carry
// the bytes that the model table gives them, and with 16 bits the optimizer states hold what makes a weight exact.
//   Bytes per parameter with AdamW: fp32 4 + 4 + 8, bf16 2 + 2 + 10, fp16 2 + 2 + 12 (weight, gradient, states);
//   strategy.gradient_precision = "fp32" adds 2 to those of 16 bits.
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.1.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

Technique precision_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
