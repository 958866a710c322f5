// PartitionedModel answers what equations ask of a run: the blocks of a pipeline stage, the size of shards, the blocks
// that are computed again, and the groups that a stage holds whole at a time. Threads: pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "herd/planner/cluster.h"
#include "herd/program/pool.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"
#include "herd/spec/stage_cut.h"
#include "herd/spec/supported.h"

namespace herd::planner {

using spec::BlockInterval;

// Lists passes over blocks that hold whole weights or gradients of groups, in the order of a step.
struct Visits {
  std::vector<program::PoolUse> weights, gradients;
  std::map<int, int> gathers = {};  // gathers of each group in one micro-batch, where it is not kept whole
  std::set<int> kept_whole = {};    // groups that ZeRO-3 keeps whole
};

// Returns the first setting whose effect equations do not know, with what they know in its place: what a row of the
// table of techniques says, and orders of a pipeline other than those of one stage a rank.
std::optional<spec::Unsupported> beyond_equations(const spec::RunFile& run, const spec::Layout& layout);

// Borrows the run and the layout.
class PartitionedModel {
 public:
  // `model` is of whole layers. REQUIRES a layout whose pipeline has no more stages than these.
  PartitionedModel(const spec::RunFile& run, const spec::Layout& layout, spec::ModelTable model);

  BlockInterval blocks_of(int stage) const { return spec::blocks_of_stage(stage_of_blocks_, stage); }
  bool is_head(size_t b) const { return b + 1 == model.blocks.size(); }
  bool recomputed(size_t b) const { return segment > 0 && b > 0 && b >= first && !is_head(b); }
  size_t index_in_segment(size_t b) const { return (b - std::max<size_t>(first, 1)) % segment; }
  bool ends_segment(size_t b, const BlockInterval& blocks) const {
    return recomputed(b) && (index_in_segment(b) + 1 == segment || is_head(b + 1) || b + 1 == blocks.end);
  }

  std::set<int> groups_of(const BlockInterval& blocks) const;
  bool ends_share_groups() const;  // tells whether the first and the last stage do
  bool frozen(int group) const { return model.groups[static_cast<size_t>(group)].frozen; }
  double trained_elements(const BlockInterval& blocks) const;
  double whole_elements(const BlockInterval& blocks) const;  // counts trained ones that every tensor-parallel rank has
  int64_t weight_bytes(int group) const;
  int64_t shard_bytes(int group) const;  // counts the shard's weights
  // Returns the bytes of gradients per byte of weights; gradients are cut as weights are, so it holds for every part.
  double gradient_ratio() const;

  Visits visits(const BlockInterval& blocks) const;
  double gathered_bytes(const Visits& uses) const;  // counts the weights that a step gathers

  const spec::RunFile& run;
  const spec::Layout& layout;
  const spec::ModelTable model;
  const size_t first;      // first block with a trained group: those before it are not differentiated
  const int shards;        // shards that ZeRO cuts into
  const std::string axis;  // axis of these shards
  const int zero;          // ZeRO stage
  const size_t segment;    // transformer blocks that are computed again together; 0 = none

 private:
  const std::vector<int> stage_of_blocks_;
};

}  // namespace herd::planner
