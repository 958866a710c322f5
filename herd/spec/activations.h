// Activation bytes of one transformer layer, 16-bit, as the literature counts them (a dropout mask is one byte an
// element). s tokens, b sequences, h width, a heads, t tensor-parallel ranks. What herd's own layers keep is in
// model_table.h. Source: Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 5.   Throws kBadConfig if a % t !=
// 0. Threads: pure.
#pragma once

#include <cstdint>

namespace herd::spec {

struct LayerShape {
  double s = 0, b = 1, h = 0, a = 1;
};

enum class Recompute : uint8_t { kNone, kSelective, kFull };

double attention_activation_bytes(const LayerShape& layer);  // 11sbh + 5as^2b
double mlp_activation_bytes(const LayerShape& layer);        // 19sbh
double norm_activation_bytes(const LayerShape& layer);       // 4sbh, both norms

//                       none                       selective        full
//   t ranks             sbh(10 + 24/t + 5as/(ht))  sbh(10 + 24/t)   2sbh
//   sequence parallel   sbh(34/t + 5as/(ht))       34sbh/t          2sbh
// Check: t = 1 gives the sum of the three terms above, sbh(34 + 5as/h).
double layer_activation_bytes(const LayerShape& layer, int t = 1, bool sequence_parallel = false,
                              Recompute recompute = Recompute::kNone);

// Attention's own part before its output projection and that one's dropout: 8sbh + 5as^2b (input 2sbh, q and k 4sbh,
// v 2sbh, softmax and its dropout 2as^2b + as^2b + 2as^2b).
double attention_core_activation_bytes(const LayerShape& layer);

// Checkpoints of N layers, one every K of them: what backward holds at its worst, in units of one layer's output (the
// ceil(N/K) checkpoints) and of one layer's activations (the K layers computed again).
//   memory O(N/K) + O(K), least at K = sqrt(N).   Source: Chen et al. 2016, arXiv:1604.06174, section 4.
struct Checkpoints {
  int64_t kept = 0;     // layers whose input stays
  int64_t segment = 0;  // layers between two of them
};
Checkpoints checkpoints_every(int64_t layers, int64_t every);  // throws kBadConfig unless 1 <= every
int64_t sqrt_interval(int64_t layers);                         // K = round(sqrt(N)), at least 1

}  // namespace herd::spec
