// Runs the blocks of a Chain as blocks of a model. Their modules' parameters are views of flat groups.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "herd/chain/model_chain.h"
#include "herd/nn/block.h"
#include "herd/spec/model_table.h"

namespace herd {

// Makes a block's module with torch's generator seeded by the block's name, and leaves the generator as it was.
std::shared_ptr<torch::nn::Module> make_module(const Chain::Block& owner, uint64_t seed);

// Returns the parameters of a block's module as groups of a table: one of the trained ones and one of those that the
// patterns of model.frozen name, where there are any. Parameters without elements are in none. Throws kBadConfig for a
// tensor that the module registers twice, and for parameters that are no floating tensors.
std::vector<spec::ParameterGroupShape> groups_of_module(const Chain::Block& owner, const torch::nn::Module& module,
                                                        const std::string& frozen);

// Makes such a group, with the initial weights of a module that make_module() makes.
std::shared_ptr<nn::ParameterGroup> make_group(const Chain::Block& owner, const spec::ParameterGroupShape& shape,
                                               at::ScalarType dtype, at::ScalarType gradient_dtype,
                                               at::Device device = at::kCPU);

// Holds a module whose parameters have become the values of groups. Blocks that share weights share it.
class OwnedModule {
 public:
  // `module` is what make_module() returned for the owner. Throws kBadConfig where it is not the one of the groups.
  // `changing` names the buffers, as the table does, that its passes change.
  OwnedModule(const Chain::Block& owner, std::shared_ptr<torch::nn::Module> module,
              const std::vector<std::shared_ptr<nn::ParameterGroup>>& groups, at::ScalarType dtype,
              at::Device device = at::kCPU, const std::vector<spec::ParameterShape>& changing = {});
  torch::nn::Module* get() const { return module_.get(); }
  const std::vector<nn::Buffer>& buffers() const { return buffers_; }  // those that its passes change

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<nn::Buffer> buffers_;
};

struct OwnBlockParts {
  Chain::Block block;
  std::vector<std::shared_ptr<nn::ParameterGroup>> groups;
  std::shared_ptr<OwnedModule> module;          // null for a block without one, or that this rank does not run
  std::vector<bool> differentiates = {};        // by input: whether it gets a gradient
  std::vector<spec::TensorShape> outputs = {};  // what the trace has seen; empty: no trace to compare with
  std::vector<std::string> figures = {};        // that a last block gives after the sum and the count
};

// Returns the block; a nn::LossBlock where `is_loss`.
std::shared_ptr<nn::Block> make_own_block(OwnBlockParts parts, bool is_loss);

}  // namespace herd
