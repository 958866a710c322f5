// Defines how a chain of blocks is cut into the stages of a pipeline.   Threads: pure.
#pragma once

#include <map>
#include <vector>

#include "herd/spec/model_table.h"

namespace herd::spec {

// In the cut of a chain of a user's own blocks, a byte that a block's ops move in memory counts as so many FLOP, and on
// both sides of a border a byte that crosses it, there or back. Blocks of a model that herd knows are alike, and so are
// its borders: they count FLOP alone.
inline constexpr double kFlopsPerByte = 16, kFlopsPerBorderByte = 64;

// Returns the stage of each block. Stages are consecutive blocks, every stage has at least one, and the blocks of a
// layer share a stage. The stage with the most FLOP has as few as possible, since a pipeline is as fast as its slowest
// stage. Among such cuts it takes those whose stages are most alike (least sum of squares), then the one whose first
// stages are shortest. Throws kBadConfig unless 1 <= stages <= layers, where embedding and head count as layers.
std::vector<int> stage_of_blocks(const ModelTable& model, int stages);

// Cuts for ranks that have several stages; rank_of_stage[s] has stage s. It starts from the cut above and moves borders
// by one layer while that makes the cut better. A cut is better with fewer FLOP on the rank that has most. Among equal
// ones it is better with fewer FLOP in the largest stage, then with stages more alike.
std::vector<int> stage_of_blocks(const ModelTable& model, const std::vector<int>& rank_of_stage);

// Returns the FLOP of both passes over a block for one micro-batch, by which a cut weighs blocks.
double flops_of(const BlockShape& block);

// Returns, by stage, the tensors that its rank sends to the rank of the next stage, ascending. A tensor goes from stage
// to stage, once to each rank that lacks it, and only to ranks whose blocks read it or that send it on to such a rank.
// Ranks load the batch themselves.
// `readers` are the blocks that read each tensor, and rank_of_stage[s] has stage s.
std::vector<std::vector<TensorId>> border_tensors(const std::map<TensorId, std::vector<int>>& readers,
                                                  const std::vector<int>& stage_of_blocks,
                                                  const std::vector<int>& rank_of_stage);

// Holds the blocks [begin, end) of a stage.
struct BlockInterval {
  size_t begin = 0, end = 0;
};
BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage);

}  // namespace herd::spec
