// Computes the global gradient norm and the factor that clips it: a barrier between the last reduce and the first
// update.
//   norm<g> = sum of squares of group g's gradient (no root);  factor = min(1, limit / sqrt(sum of all norms)).
//   The factor is a buffer that every kStep op reads, so that nothing branches. Where gradients are whole on every
//   rank, each computes all norms and no rank hears from another: all sum in the same order, so all get the same bits.
//   Where updates read shards, each rank computes the norms of its shards. They are summed over the axis that cuts
//   them, 8 bytes a group in one message. In a pipeline a rank has the groups of its stage, and with tensor parallelism
//   its part of each cut group, and where groups have owners those that it owns. It adds these up in a single value,
//   named norm0, which is summed over stages and tensor-parallel ranks. A group or part that several ranks hold enters
//   the sum on the first of these ranks alone.
// Source: Pascanu et al. 2013, arXiv:1211.5063, section 3.2.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

// Names the axes over which norms are summed.
struct ClipAxes {
  int shards = kNoAxis;    // axis that cuts gradients into shards, or whose ranks own them; kNoAxis where whole
  int stages = kNoAxis;    // axis of the pipeline; kNoAxis where every rank has all groups
  int tensor = kNoAxis;    // axis of tensor-parallel ranks; kNoAxis where every rank has all of each group
  int experts = kNoAxis;   // axis of ranks that hold parts of the groups of experts
  int data = kNoAxis;      // axis of all ranks that contribute to gradients
  int replicas = kNoAxis;  // axis of ranks that hold copies of the shards of other groups
  bool owned = false;      // true: gradients have owners along `shards`
};

class GradientClipping final : public Strategy {
 public:
  // The ranks of stage s enter groups_by_stage[s] into the sum; empty = all groups. `cut` are the groups of which
  // tensor-parallel ranks have parts. `copied` are those of them whose parts several ranks hold, with the axis of
  // these. `of_experts` are those of which expert-parallel ranks have parts.
  explicit GradientClipping(const ClipAxes& axes = {}, std::vector<std::set<int>> groups_by_stage = {},
                            std::set<int> cut = {}, std::map<int, int> copied = {}, std::set<int> of_experts = {})
      : axes_(axes),
        groups_by_stage_(std::move(groups_by_stage)),
        cut_(std::move(cut)),
        copied_(std::move(copied)),
        of_experts_(std::move(of_experts)) {}
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  bool counts(const program::Program& step, int group) const;

  ClipAxes axes_;
  std::vector<std::set<int>> groups_by_stage_;
  std::set<int> cut_;
  std::map<int, int> copied_;
  std::set<int> of_experts_;
};

// Tells whether a step needs the gradient's norm: to clip, to stop where it is not finite, or to skip a step that
// overflowed fp16. Otherwise no rank waits for the others before it updates. Ranks that push to servers have no norm;
// each checks what it pushes.
bool needs_norm(const spec::RunFile& run, const spec::Layout& layout);

Technique gradient_clipping_row();

}  // namespace herd::strategies
