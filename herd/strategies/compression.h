// Gradients are summed in 16 bits: encoded before a reduction between data ranks, decoded before anything works on
// them.
//   Sent of a gradient: half of what fp32 sends, 2(n-1)/n * 2 bytes an element. Within a host sums are made in fp32 and
//   rounded once; a sum that passes hosts is rounded on each.
//   Error: each term and each sum is rounded to 8 significant bits, by at most 2^-8 of it. Exponents are those of fp32,
//   so no scale is needed.
//   Bytes of a parameter: 2 more, for what is encoded. Encoding and decoding pass over 6 bytes a parameter each.
//   A sum that follows another (among the copies of a shard) works on what is encoded. Everything is decoded before the
//   first op that reads a gradient otherwise, so reductions stay beside the backward that follows them.
// Source: torch.distributed's bf16_compress_hook has the same arithmetic.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Compression final : public Strategy {
 public:
  // REQUIRES fp32 gradients that are reduced once a step.
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;
};

Technique compression_row();

}  // namespace herd::strategies
