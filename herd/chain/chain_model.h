// Makes the blocks and parameter groups of a chain from its table. Threads: one at a time.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "herd/chain/model_chain.h"
#include "herd/nn/block.h"
#include "herd/nn/parameter_group.h"
#include "herd/spec/model_table.h"

namespace herd {

struct ChainModel {
  std::vector<std::shared_ptr<nn::Block>> blocks;  // the last one is a nn::LossBlock
  std::vector<std::shared_ptr<nn::ParameterGroup>> groups;
};

// Builds modules of the blocks in `own` alone, those that this rank runs. Throws kBadConfig where a module has other
// parameters than the table, so where its factory does not build the same module each time. Parameters and buffers are
// on `device`.
ChainModel make_chain_model(const Chain& chain, const spec::ModelTable& table, const std::set<int>& own,
                            at::Device device = at::kCPU);

}  // namespace herd
