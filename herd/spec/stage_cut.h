// Defines how a chain of blocks is cut into the stages of a pipeline.   Threads: pure.
#pragma once

#include <vector>

#include "herd/spec/model_table.h"

namespace herd::spec {

// The stage of each block: neighbours in `stages` runs of at least one block, so that the stage with most arithmetic
// has as little as can be, since a pipeline is as fast as its slowest stage; among such cuts the one whose stages are
// most alike (least sum of squares), and of those the one whose first stages are shortest.
// Throws kBadConfig unless 1 <= stages <= blocks.
std::vector<int> stage_of_blocks(const ModelTable& model, int stages);

// The same where ranks have several stages, stage s that of rank_of_stages[s]: starting from the cut above, borders
// move by a layer as long as the rank with most arithmetic then has less, or as much and the largest stage has less.
std::vector<int> stage_of_blocks(const ModelTable& model, const std::vector<int>& rank_of_stages);

// FLOPs of both passes over a block, for one micro-batch: what a cut goes by.
double arithmetic_of(const BlockShape& block);

// Blocks [begin, end) of a stage.
struct BlockInterval {
  size_t begin = 0, end = 0;
};
BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage);

}  // namespace herd::spec
