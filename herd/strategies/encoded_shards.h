// Sums the gradients of ZeRO-2 and 3 in a codec over an axis of n ranks (ZeRO++'s quantised gradients).
//   int8, int4  A rank encodes its whole gradient, shard after shard, in blocks of 256 with a scale each. An all-to-all
//               gives each rank what all ranks have encoded of its shard, which it adds in fp32, in the order of ranks,
//               and rounds once. Of a shard of s elements a rank sends (n-1) (s + 4 ceil(s/256)) bytes in int8, and
//               half of the s in int4.
//   It rewrites reduce_scatter(g [, g.shard] -> g.shard) -> encode(g -> g.int8), all_to_all(g.int8 -> g.shard.int8),
//   decode(g.shard.int8 [, g.shard] -> g.shard), the last two on lane reduce. Sums over copies of shards stay plain.
//   With strategy.secondary_shard, h hosts of l ranks sum in two exchanges. Inside a host, a rank gets the terms of the
//   shards at its place of all hosts, and encodes their sums; these go between hosts, to the ranks at its place. So a
//   rank sends (l-1) h (s + 4 ceil(s/256)) bytes inside its host, and (h-1) (s + 4 ceil(s/256)) between hosts, 1/l of
//   what one exchange would. Then the all_to_all above becomes all_to_all(g.int8 -> g.shard(local).int8), encode(that
//   -> g.shard(local).partial(hosts).int8), all_to_all(that -> g.shard.int8).
// Each term is encoded once, whatever n is, or twice with two exchanges, each time off by at most 1/254 (int8) or 1/14
// (int4) of its block's largest. What encoding loses is lost: a residual would be as large as the gradient that ZeRO-2
// cuts. A pool holds encoded gradients and terms of a few blocks, n (s + 4 ceil(s/256)) bytes each in int8. Source:
// Wang et al. 2023, ZeRO++, arXiv:2306.10209, section 3.3.   Threads: pure.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class EncodedShards final : public Strategy {
 public:
  // REQUIRES a program that Zero2 has rewritten, with gradients of `dtype`, and a codec in blocks. The axes of hosts
  // are those of spec::Layout, both kNoAxis for one exchange.
  EncodedShards(program::Codec codec, DType dtype, int local_axis = kNoAxis, int hosts_axis = kNoAxis)
      : codec_(codec), dtype_(dtype), local_axis_(local_axis), hosts_axis_(hosts_axis) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  program::Codec codec_;
  DType dtype_;
  int local_axis_, hosts_axis_;
};

}  // namespace herd::strategies
