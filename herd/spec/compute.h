// Parameters of a decoder and the arithmetic to train it. Threads: pure.
#pragma once

namespace herd::spec {

// V*d + L(12d^2 + 5d): embedding and L layers of four attention matrices, two of the feed-forward layer (4d wide).
// Check: GPT-3 (V 50257, d 12288, L 96) is within 1 % of 175e9.   Source: Brown et al. 2020, arXiv:2005.14165,
// table 2.1.
double decoder_parameters(double vocab, double width, double layers);

// The general form V*d + L(4*heads*d_head*d + 2*d_ffn*d + 5d).
double decoder_parameters(double vocab, double width, double layers, double heads, double head_width, double ffn);

// 6*P*T FLOP: P parameters, T tokens; 2 forward, 4 backward.   Source: Kaplan et al. 2020, arXiv:2001.08361,
// section 2.1.
double training_flops(double parameters, double tokens);

// 6PT / (FLOP/s * seconds). Check: 175e9 parameters, 300e9 tokens, 160e12 FLOP/s, 30 days: about 760.
double devices_needed(double parameters, double tokens, double flops_per_second, double seconds);

}  // namespace herd::spec
