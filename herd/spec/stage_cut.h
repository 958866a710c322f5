// Defines how a chain of blocks is cut into the stages of a pipeline.   Threads: pure.
#pragma once

#include <vector>

#include "herd/spec/model_table.h"

namespace herd::spec {

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

// Holds the blocks [begin, end) of a stage.
struct BlockInterval {
  size_t begin = 0, end = 0;
};
BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage);

}  // namespace herd::spec
