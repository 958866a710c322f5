// Sums gradients in 16 bits: encodes them as bf16 before a reduction between data ranks, and decodes them before
// anything else works on them.
//   A rank sends half of what fp32 sends: 2(n-1)/n * 2 bytes for each element among n ranks.
//   Each term and each sum is rounded to 8 significant bits, an error of at most 2^-8 of it. Within a host, sums are
//   made in fp32 and rounded once; a sum that passes several hosts is rounded on each. bf16 has the exponents of fp32,
//   so no scale is needed.
//   A rank holds 2 bytes more for each parameter. Encoding and decoding read and write 6 bytes for each parameter.
//   A sum over the copies of a shard, which follows the first sum, adds encoded gradients. Gradients are decoded before
//   the first op, other than such a sum, that reads one. So reductions stay beside the backward ops that follow them.
// Source: torch.distributed's bf16_compress_hook has the same arithmetic.   Threads: pure.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Compression final : public Strategy {
 public:
  std::string name() const override;
  // REQUIRES fp32 gradients that are reduced once a step.
  program::Program rewrite(program::Program step) const override;
};

// Returns the row of strategy.compression = "bf16". It throws kBadConfig where gradients have 16 bits already, and
// where ZeRO-2 or 3 adds to sums after each micro-batch.
Technique compression_row();

}  // namespace herd::strategies
