// Gathers the weights of ZeRO-3 in a codec over an axis of n ranks (ZeRO++'s quantised weights).
//   int8  A shard of s elements is encoded in blocks of 256 with a scale each: s + 4 ceil(s/256) bytes, about a quarter
//         of fp32 and half of 16 bits. Each gather of it sends (n-1) times as much from a rank.
//   It rewrites all_gather(w.shard -> w) -> all_gather(w.shard.int8 -> w.int8), decode(w.int8 -> w), and adds
//   encode(w.shard -> w.shard.int8) after each op that writes a shard.
// A rank holds its encoded shard from step to step, and encodes it after each update, on the lane of the op that wrote
// the shard. Gathers run ahead into buffers in the codec. The compute lane decodes each right before its pass, into
// whole weights that are over after it. So every rank, the owner of a shard included, computes on the same decoded
// weights, in forward and backward, while the update works on the exact shard. Groups that are kept whole through a
// step (strategy.keep_whole) lie around their exact shards, and are gathered as they are.
// Decoded, an element of a block is off by at most amax / 254, and by 2^-8 (bf16) or 2^-11 (fp16) of itself.
// Source: Wang et al. 2023, ZeRO++, arXiv:2306.10209, section 3.1.   Threads: pure.
#pragma once

#include "herd/strategies/technique.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

class GatherCodec final : public Strategy {
 public:
  // REQUIRES a program that Zero3 has rewritten over the same axis, with weights of `dtype`.
  GatherCodec(ShardAxes axes, program::Codec codec, DType dtype)
      : axes_(std::move(axes)), codec_(codec), dtype_(dtype) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  ShardAxes axes_;
  program::Codec codec_;
  DType dtype_;
};

// Returns the codec in which the run gathers weights: strategy.gather_codec; kPlain where there is one data rank.
program::Codec weight_codec(const spec::RunFile& run, const spec::Layout& layout);

// Returns the row of strategy.gather_codec, which throws kBadConfig where ranks gather no weights for passes.
Technique gather_codec_row();

}  // namespace herd::strategies
