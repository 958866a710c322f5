// A model: a chain of blocks and the parameter groups they read.
//   blocks[0] takes token ids int64 (B, T); blocks[last] is the LossBlock. block_groups()[b] lists the indices into
//   `groups` that block b reads, the same numbers that a Program's block_groups hold.
#pragma once

#include <memory>
#include <vector>

#include "herd/nn/block.h"

namespace herd::models {

struct Model {
  std::vector<std::shared_ptr<nn::Block>> blocks;
  std::vector<std::shared_ptr<nn::ParameterGroup>> groups;

  int64_t context = 0;  // most tokens of a sequence

  nn::LossBlock& loss_block() const { return dynamic_cast<nn::LossBlock&>(*blocks.back()); }
  int64_t parameters() const;  // elements of all groups
  std::vector<std::vector<int>> block_groups() const;
};

}  // namespace herd::models
