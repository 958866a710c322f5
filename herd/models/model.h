// A model is a chain of blocks and the parameter groups they read. Threads: one at a time.
//   blocks[0] takes token ids int64 (B, T); blocks[last] is the LossBlock. block_groups()[b] lists the indices into
//   `groups` that block b reads; they are the numbers in a Program's block_groups.
#pragma once

#include <memory>
#include <vector>

#include "herd/nn/block.h"
#include "herd/nn/router_state.h"

namespace herd::models {

struct Model {
  std::vector<std::shared_ptr<nn::Block>> blocks;
  std::vector<std::shared_ptr<nn::ParameterGroup>> groups;

  int64_t context = 0;                                         // limit on tokens of a sequence
  std::vector<std::shared_ptr<nn::RouterState>> routers = {};  // of the layers with experts, in order

  nn::LossBlock& loss_block() const { return dynamic_cast<nn::LossBlock&>(*blocks.back()); }
  int64_t parameters() const;  // returns the elements of all groups
  std::vector<std::vector<int>> block_groups() const;
};

}  // namespace herd::models
