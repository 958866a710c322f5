// The global gradient norm, and the factor that clips it: a barrier between the last reduce and the first step.
//   norm<g> = sum of squares of group g's gradient;  factor = min(1, limit / sqrt(sum of all norms)).
//   The factor is a buffer that every step op reads, so that nothing branches. Where gradients are whole on every rank,
//   each computes all norms and no rank hears from another: all sum in the same order, so all get the same bits.
//   Where steps read shards, the norms of all groups are those of shards, and are summed over the axis that cuts them,
//   8 bytes a group in one message. In a pipeline a rank has the groups of its stage, and with tensor parallelism its
//   part of those that are cut: it adds their norms up, norm0, and that is summed over stages and tensor-parallel
//   ranks. A group that several stages hold counts on the first of them, one that tensor-parallel ranks have whole on
//   the first, and so does a part that some of these have copies of.
// Source: Pascanu et al. 2013, arXiv:1211.5063, section 3.2.
#pragma once

#include <set>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

// kNoAxis where gradients are whole, where every rank has all groups, and where it has all of each.
struct ClipAxes {
  int shards = kNoAxis, stages = kNoAxis, tensor = kNoAxis;
  int copies = kNoAxis;  // of tensor-parallel ranks that hold the same part of `copied` groups
};

class GradientClipping final : public Strategy {
 public:
  // `counted`: by stage, the groups that count there. `cut`: groups that tensor-parallel ranks have parts of; `copied`:
  // those of them that several ranks have the same part of.
  explicit GradientClipping(const ClipAxes& axes = {}, std::vector<std::set<int>> counted = {}, std::set<int> cut = {},
                            std::set<int> copied = {})
      : axes_(axes), counted_(std::move(counted)), cut_(std::move(cut)), copied_(std::move(copied)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  bool counts(const program::Program& step, int group) const;

  ClipAxes axes_;
  std::vector<std::set<int>> counted_;
  std::set<int> cut_, copied_;
};

// Whether a step asks for the norm of the gradient: to clip by it, to stop where it is no finite number, or to skip a
// step whose fp16 gradients overflowed. Where nobody does, no rank waits for the others before it updates.
bool needs_norm(const spec::RunFile& run);

Technique gradient_clipping_row();

}  // namespace herd::strategies
