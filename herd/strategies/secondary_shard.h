// Keeps a second shard of weights on each host, beside ZeRO-3's over all n ranks (ZeRO++'s hierarchical partitioning).
// Each of h hosts has l = n/h ranks.
//   The first gather of a group in a step has two parts: ranks at the same place of their hosts gather their shards
//   between hosts, and the ranks of each host gather what these now hold. That is kept until the last pass of the step
//   that uses the group, so later gathers, such as backward's, move nothing between hosts. A rank receives (h-1)/n of
//   the weights from other hosts once a step, in place of once a pass; it holds 1/l of the weights more.
//   It rewrites the first all_gather(w.shard -> w) of a step -> all_gather(w.shard -> w.shard(local)) along the hosts
//   and all_gather(w.shard(local) -> w) inside the host, and later ones -> the second of these. A shard of a host is
//   made of h pieces, those of the ranks at its place. No sum changes, and so no bit of a result. Groups that are kept
//   whole through a step are gathered once, as they are.
// Source: Wang et al. 2023, ZeRO++, arXiv:2306.10209, section 3.2.   Threads: pure.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class SecondaryShard final : public Strategy {
 public:
  // REQUIRES a program that Zero3 has rewritten over `axis`, of which the others are the two parts.
  SecondaryShard(int axis, int local_axis, int hosts_axis)
      : axis_(axis), local_axis_(local_axis), hosts_axis_(hosts_axis) {}
  std::string name() const override { return "secondary shards of weights"; }
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_, local_axis_, hosts_axis_;
};

// Returns the row of strategy.secondary_shard, which throws kBadConfig where ranks gather no weights for passes.
Technique secondary_shard_row();

}  // namespace herd::strategies
