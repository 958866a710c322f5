// Ownership by layer: each parameter group is one rank's as a whole, where ZeRO gives every rank of an axis a shard of
// each group. It runs after ZeRO-1, ZeRO-2 and ZeRO-3, of any of which it keeps what lies whole.
//   The owner alone keeps the group's states, its gradient's sum (ZeRO-2) and its weights (ZeRO-3), and updates them.
//   It rewrites reduce_scatter(g -> g.shard) -> reduce(g -> g.owned at the owner), all_gather(w.shard -> w) ->
//   broadcast(w.owned at the owner -> w), and step(w.shard, s.shard) -> step(w.owned, s.owned) at the owner. Other
//   ranks have no step. A bucket of gradients becomes a reduce for each owner. What the owner has lies in the slot of
//   the whole, as a shard does.
//   All ranks together send as much as with shards: (n-1)/n of a message each, on average, and where a reduce is summed
//   in memory that all map, an n-th of it more. A rank keeps the states of its groups, at most those of the mean plus
//   the largest group.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5, with whole groups in place of equal parts; Graham 1969,
// doi:10.1137/0117039 (longest first).   Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class LayerOwners final : public Strategy {
 public:
  // `owners` gives the place on the axis of each group's owner, `weight_bytes` the bytes of its whole weights.
  LayerOwners(int axis, std::vector<int> owners, std::vector<int64_t> weight_bytes)
      : axis_(axis), owners_(std::move(owners)), weight_bytes_(std::move(weight_bytes)) {}
  std::string name() const override;
  // REQUIRES a program that ZeRO has rewritten over the same axis.
  program::Program rewrite(program::Program step) const override;

 private:
  bool is_own(const program::Program& step, int group) const;
  void replace_shards(program::Program& step) const;

  int axis_;
  std::vector<int> owners_;            // by group
  std::vector<int64_t> weight_bytes_;  // by group
};

// Gives each group to one of `ranks`: the largest first, each to the rank that has the fewest parameters so far, and of
// equal ones to the first. Ranks of each pipeline stage are balanced by themselves. Groups that are trained come before
// frozen ones, which have no states.
std::vector<int> balanced_owners(const spec::ModelTable& model, const Stages& stages, int ranks);

// Tells whether the run's groups have owners: strategy.shard = "layers" under ZeRO over several ranks.
bool has_owners(const spec::RunFile& run, const spec::Layout& layout);

Technique layer_owners_row();  // returns its row in the table of techniques.h

}  // namespace herd::strategies
