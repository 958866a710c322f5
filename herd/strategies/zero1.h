// ZeRO-1 over one axis of n ranks cuts optimizer states into shards, and leaves weights and gradients whole.
//   A rank holds weights + gradients + states/n bytes. Of psi parameters it sends 2(n-1)/n * psi elements, by a
//   reduce-scatter and an all-gather.
//   It rewrites all_reduce(g) -> reduce_scatter(g -> g.shard) and step(w, s) -> step(w.shard, s.shard). After each step
//   it adds all_gather(w.shard -> w).
//   All shards of a group have the same size (spec::shard_bytes), so a group's whole is padded to n equal shards. A
//   shard lies at its place in the whole and takes no memory of its own (slots.h). Gathers run on a lane of their own,
//   so the next forward of a block waits only for the gathers of its own groups. Frozen weights have no states and stay
//   whole. Experts that ranks of mesh.ep hold are cut over the ranks that hold the same ones, of which there may be
//   one.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1.   Threads: pure.
#pragma once

#include <set>

#include "herd/strategies/technique.h"

namespace herd::strategies {

// Says over which axis of the step's mesh each group is cut into shards.
struct ShardAxes {
  int axis = kNoAxis;
  std::set<int> experts = {};  // groups that experts_axis cuts in its place
  int experts_axis = kNoAxis;
  // Returns the axis of a group; kNoAxis where it stays whole.
  int of(int group) const { return experts.contains(group) ? experts_axis : axis; }
};

class Zero1 final : public Strategy {
 public:
  explicit Zero1(ShardAxes axes) : axes_(std::move(axes)) {}
  std::string name() const override;
  // REQUIRES gradients that are all-reduced over the axes that cut them.
  program::Program rewrite(program::Program step) const override;

 private:
  ShardAxes axes_;
};

// Returns the ZeRO stage: strategy.zero; 3 where mesh.fsdp > 1 and strategy.zero is 0; 0 where there is one data rank.
int zero_stage(const spec::RunFile& run, const spec::Layout& layout);

// Returns the index in layout.mesh of the axis that ZeRO cuts over: fsdp where it has several ranks, else dp. Returns
// kNoAxis where the ZeRO stage is 0.
int shard_axis(const spec::RunFile& run, const spec::Layout& layout);

// Returns shard_axis(), and the axis that cuts the experts of mesh.ep: that of the ranks that hold the same ones.
ShardAxes shard_axes(const StepContext& step);

// Returns what a search may try: this ZeRO stage where it is above the run's own and there are several data ranks.
template <int stage>
Alternatives zero_alternative() {
  return {.key = "strategy.zero", .automatic = true, .values = [](const spec::RunFile& run, const RankCounts& ranks) {
            return values_if(run.strategy.zero < stage && data_ranks(run, ranks) > 1, int64_t{stage});
          }};
}

Technique zero1_row();  // applies where the ZeRO stage is 1 or more

}  // namespace herd::strategies
