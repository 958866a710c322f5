// Defines how a chain of blocks is cut into the stages of a pipeline.   Threads: pure.
#pragma once

#include <vector>

#include "herd/spec/model_table.h"

namespace herd::spec {

// Returns the stage of each block: neighbours in `stages` runs of at least one block. The stage with the most
// arithmetic has as little as possible, since a pipeline is as fast as its slowest stage. Among such cuts it takes
// those whose stages are most alike (least sum of squares), then the one whose first stages are shortest. Throws
// kBadConfig unless 1 <= stages <= blocks.
std::vector<int> stage_of_blocks(const ModelTable& model, int stages);

// Cuts for ranks that have several stages; rank_of_stages[s] has stage s. It starts from the cut above. A border moves
// by a layer while that gives the rank with the most arithmetic less, or as much and the largest stage less.
std::vector<int> stage_of_blocks(const ModelTable& model, const std::vector<int>& rank_of_stages);

// Returns the FLOP of both passes over a block for one micro-batch, by which a cut weighs blocks.
double arithmetic_of(const BlockShape& block);

// Holds the blocks [begin, end) of a stage.
struct BlockInterval {
  size_t begin = 0, end = 0;
};
BlockInterval blocks_of_stage(const std::vector<int>& stage_of_blocks, int stage);

}  // namespace herd::spec
