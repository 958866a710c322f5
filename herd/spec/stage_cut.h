// Defines how a chain of blocks is cut into the stages of a pipeline.   Threads: pure.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "herd/spec/model_table.h"

namespace herd::spec {

// In the cut of a chain of a user's own blocks, a byte that a block's ops move in memory counts as so many FLOP, and on
// both sides of a border a byte that crosses it, there or back. Blocks of a model that herd knows are alike, and so are
// its borders: they count FLOP alone.
inline constexpr double kFlopsPerByte = 16, kFlopsPerBorderByte = 64;

// Holds the blocks [begin, end) of a stage.
struct BlockInterval {
  size_t begin = 0, end = 0;
  auto operator<=>(const BlockInterval&) const = default;
};

// Says what stages hold in memory. A rank of several stages holds the sum of theirs.
struct StageMemory {
  // Returns the bytes that a stage holds where it has these blocks: more for more blocks. Empty: they do not count.
  std::function<double(int stage, BlockInterval blocks)> held = {};
  double budget = std::numeric_limits<double>::infinity();  // bytes of a rank
};

// Returns the stage of each block. Stages are consecutive blocks, every stage has at least one, and the blocks of a
// layer share a stage. Cuts with which no rank exceeds the budget come first; where there are none, those with the
// least bytes on the rank that holds most. Among these it takes, in this order:
//   the least FLOP in the stage that has most, since a pipeline is as fast as its slowest stage;
//   where memory counts, the least bytes on the rank that holds most, then the least bytes over all borders;
//   stages that are most alike (least sum of squares);
//   the shortest first stages.
// Throws kBadConfig unless 1 <= stages <= layers, where embedding and head count as layers.
std::vector<int> stage_of_blocks(const ModelTable& model, int stages, const StageMemory& memory = {});

// Cuts for ranks that have several stages; rank_of_stage[s] has stage s. It starts from the cut above and moves borders
// by one layer while that makes the cut better. A cut is better with fewer bytes above the budget on the rank that
// holds most. Among equal ones it is better with fewer FLOP on the rank that has most, then with fewer FLOP in the
// largest stage, then with fewer bytes on the rank that holds most, then with stages more alike.
std::vector<int> stage_of_blocks(const ModelTable& model, const std::vector<int>& rank_of_stage,
                                 const StageMemory& memory = {});

// Numbers the layers of a model, which a cut leaves whole: returns the layer of each block, from 0 on.
std::vector<int> layer_of_blocks(const ModelTable& model);

// Returns the FLOP of both passes over a block for one micro-batch, by which a cut weighs blocks.
double flops_of(const BlockShape& block);

// Returns, by stage, the tensors that its rank sends to the rank of the next stage, ascending. A tensor goes from stage
// to stage, once to each rank that lacks it, and only to ranks whose blocks read it or that send it on to such a rank.
// Ranks load the batch themselves.
// `readers` are the blocks that read each tensor, and rank_of_stage[s] has stage s.
std::vector<std::vector<TensorId>> border_tensors(const std::map<TensorId, std::vector<int>>& readers,
                                                  const std::vector<int>& stage_of_blocks,
                                                  const std::vector<int>& rank_of_stage);

BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage);

}  // namespace herd::spec
