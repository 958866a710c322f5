// Counts the parameters of a decoder and the arithmetic to train it. Threads: pure.
#pragma once

#include "herd/spec/model_table.h"

namespace herd::spec {

// Returns the parameters that a token uses, those of the embedding included: all of them, but of a mixture of E experts
// top_k/E of each layer's, and the shared ones.
// Check: Mixtral 8x7B, 12.9e9 of 46.7e9.   Source: Jiang et al. 2024, arXiv:2401.04088, section 2.
int64_t active_parameters(const ModelTable& model);

// Returns V*d + L(12d^2 + 5d): the embedding, and L layers of four attention matrices and two of a feed-forward layer
// 4d wide.
// Check: GPT-3 (V 50257, d 12288, L 96) is within 1 % of 175e9.   Source: Brown et al. 2020, arXiv:2005.14165,
// table 2.1.
double decoder_parameters(double vocab, double width, double layers);

// Returns the general form V*d + L(4*heads*d_head*d + 2*d_ffn*d + 5d).
double decoder_parameters(double vocab, double width, double layers, double heads, double head_width, double ffn);

// Return the FLOP of one step of a decoder, counted layer by layer: forward, and twice that for backward. Symbols: B
// sequences of s tokens, L layers, h width, v vocabulary.
//   model      72*B*L*s*h^2 (1 + s/(6h) + v/(12hL))
//   selective  72*B*L*s*h^2 (1 + s/(3h) + v/(12hL))    computes the scores twice, as the paper counts them
//   full       96*B*L*s*h^2 (1 + s/(6h) + v/(16hL))    computes every layer's forward twice
// Check: with Korthikanti's measured times, model FLOPs of 41.5 % of 312 TFLOP/s for 22 B on 8 devices (1.10 s), 51.4 %
// for 175 B on 64, 56.0 % for 530 B on 280, 56.3 % for 1 T on 512.
// Source: Korthikanti et al. 2022, arXiv:2205.05198, appendix A.
struct StepShape {
  double batch = 1, context = 1, layers = 1, width = 1, vocab = 1;
};
double model_step_flops(const StepShape& step);
double selective_recompute_step_flops(const StepShape& step);
double full_recompute_step_flops(const StepShape& step);

// Returns 6*P*T FLOP for P parameters that a token uses and T tokens: 2 forward, 4 backward. Source: Kaplan et al.
// 2020, arXiv:2001.08361, section 2.1.
double training_flops(double parameters, double tokens);

// Returns 6PT / (FLOP/s * seconds). Check: 175e9 parameters, 300e9 tokens, 160e12 FLOP/s and 30 days need about 760
// devices.
double devices_needed(double parameters, double tokens, double flops_per_second, double seconds);

}  // namespace herd::spec
