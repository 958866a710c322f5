// Defines rotary position embedding: queries and keys turn by their position, so that a product of two depends on their
// distance. Elements i and i + d/2 of a head of width d are a pair; at position t it turns by the angle t * f_i.
//   f_i = theta^(-2i/d)                                               i in [0, d/2)
//   linear: f_i / factor
//   llama3: rounds r_i = original_context * f_i / (2 pi);  f_i where r_i > high_freq_factor,
//           f_i / factor where r_i < low_freq_factor, else (1 - s) f_i / factor + s f_i
//           with s = (r_i - low_freq_factor) / (high_freq_factor - low_freq_factor)
// Frequencies and angles are fp32, as in the published implementations, and have their error: 5e-4 radians at position
// 8000. Source: Su et al. 2021, arXiv:2104.09864; Chen et al. 2023, arXiv:2306.15595 (linear); Llama team 2024,
// arXiv:2407.21783, section 3.2 (theta of Llama 3).
// Threads: torch's; pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "herd/nn/token_cut.h"

namespace herd::nn {

enum class RotaryScaling : uint8_t { kNone, kLinear, kLlama3 };

struct Rotary {
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;  // low and high: kLlama3 only
  int64_t original_context = 8192;                               // tokens; kLlama3 only
};

// Returns f (d/2), fp32, on the CPU. REQUIRES d even.
at::Tensor rotary_frequencies(const Rotary& rotary, int64_t head_width);

// Turns the first `heads` heads of each row of x in place, and returns x. Backward turns their gradients back in place;
// the graph keeps nothing. x_BTC has the tokens of `spans`; heads of 2 * frequencies.numel() lie one after the
// other at the beginning of C. REQUIRES that no graph has kept x, and that nothing else reads the gradient of the
// result.
at::Tensor rotate_heads(const at::Tensor& x_BTC, const at::Tensor& frequencies, int64_t heads,
                        const std::vector<TokenSpan>& spans);
// Does the same where each of the B rows has spans of its own.
at::Tensor rotate_heads_by_row(const at::Tensor& x_BTC, const at::Tensor& frequencies, int64_t heads,
                               const std::vector<std::vector<TokenSpan>>& spans_of_rows);

}  // namespace herd::nn
