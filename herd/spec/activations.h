// Computes the activation bytes of one transformer layer, 16-bit, as the literature counts them (a dropout mask is one
// byte an element). Symbols: s tokens, b sequences, h width, a heads, t tensor-parallel ranks. model_table.h holds what
// herd's own layers keep.
// Throws kBadConfig if a % t != 0. Source: Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 5. Threads: pure.
#pragma once

#include <cstdint>

namespace herd::spec {

struct LayerShape {
  double s = 0, b = 1, h = 0, a = 1;
};

enum class RecomputeKind : uint8_t { kNone, kSelective, kFull };

double attention_activation_bytes(const LayerShape& layer);  // returns 11sbh + 5as^2b
double mlp_activation_bytes(const LayerShape& layer);        // returns 19sbh
double norm_activation_bytes(const LayerShape& layer);       // returns 4sbh, for both norms

// Returns the bytes of a layer on one rank:
//                       none                       selective        full
//   t ranks             sbh(10 + 24/t + 5as/(ht))  sbh(10 + 24/t)   2sbh
//   sequence parallel   sbh(34/t + 5as/(ht))       34sbh/t          2sbh
// Check: t = 1 gives the sum of the three terms above, sbh(34 + 5as/h).
double layer_activation_bytes(const LayerShape& layer, int t = 1, bool sequence_parallel = false,
                              RecomputeKind recompute = RecomputeKind::kNone);

// Returns what attention keeps before its output projection and that projection's dropout: 8sbh + 5as^2b. That is input
// 2sbh, q and k 4sbh, v 2sbh, softmax and its dropout 2as^2b + as^2b + 2as^2b.
double attention_core_activation_bytes(const LayerShape& layer);

// Describes recomputation of N layers in segments of K. At its peak, backward holds the inputs of all ceil(N/K)
// segments, and the activations of the K layers of one segment.
//   memory O(N/K) + O(K), least at K = sqrt(N).   Source: Chen et al. 2016, arXiv:1604.06174, section 4.
struct RecomputeSegments {
  int64_t kept = 0;                // layers whose inputs are kept: one a segment
  int64_t layers_per_segment = 0;  // layers of the longest segment
};
RecomputeSegments segments_every(int64_t layers, int64_t every);  // throws kBadConfig unless every >= 1
int64_t sqrt_interval(int64_t layers);                            // returns K = round(sqrt(N)), at least 1

}  // namespace herd::spec
