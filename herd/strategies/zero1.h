// ZeRO-1 over one axis of n ranks: optimizer states in shards; weights and gradients whole.
//   Bytes per rank: weights + gradients + states/n.   Sent: reduce-scatter and all-gather, 2(n-1)/n * psi elements.
//   Rewrites all_reduce(g) -> reduce_scatter(g -> g.shard);  step(w, s) -> step(w.shard, s.shard), then
//   all_gather(w.shard -> w). A group's shards are cut alike (spec::shard_bytes); the whole is n of them, so its bytes
//   grow by the padding. Shards lie at their place in the whole and take no memory of their own (slots.h). Gathers run
//   on a lane of their own: the next forward waits for the gather of its own block only. Frozen weights have no states,
//   so they stay as they are.
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 5.1.
#pragma once

#include "herd/strategies/technique.h"

namespace herd::strategies {

class Zero1 final : public Strategy {
 public:
  explicit Zero1(int axis) : axis_(axis) {}  // REQUIRES gradients that are reduced over the axis
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
};

// The ZeRO stage: strategy.zero; 3 with an fsdp axis and no stage, since that axis is for nothing else; 0 where no
// ranks share.
int zero_stage(const spec::RunFile& run, const spec::Layout& layout);

// The axis that ZeRO cuts over: fsdp where there is one, else dp; kNoAxis where nothing is cut.
int shard_axis(const spec::RunFile& run, const spec::Layout& layout);

// A search tries stages above the run's own, where there are ranks to share.
template <int stage>
Alternatives zero_alternative() {
  return {.key = "strategy.zero", .automatic = true, .values = [](const spec::RunFile& run, const Ranks& ranks) {
            return values_if(run.strategy.zero < stage && data_ranks(run, ranks) > 1, int64_t{stage});
          }};
}

Technique zero1_row();

}  // namespace herd::strategies
