// Defines what a model is made of: a chain of blocks, each from a tuple of tensors to a tuple of tensors.
//
// The last block of a chain is a LossBlock: it computes loss, input gradient and weight gradient together.
// run_block.h runs one block forward and backward; runtime does so in the order of a Program.
// Shapes: B sequences, T tokens, D width, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "herd/nn/parameter_group.h"

namespace herd::comm {
class Communicator;
}

namespace herd::nn {

class KeyValueCache;

using Tuple = std::vector<at::Tensor>;

// What a forward pass may depend on besides weights and input. Everything random is keyed by it (dropout.h).
struct Context {
  bool training = false;  // dropout only when training
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples = {};  // global sample index of each of the B rows; needed where dropout > 0
  int layer = 0;                      // of the block in the whole model, so that stages draw what the whole would
  double weight = 1;  // LossBlock: gradients are those of weight * sum of token losses (1 / global tokens)
  KeyValueCache* cache =
      nullptr;  // while generating: x holds only the tokens after the cached ones (key_value_cache.h)
  // Of blocks that are parts of a layer, whose values are rows: row r of a micro-batch is token r % tokens of its
  // sample r / tokens. A shard of them begins with first_row, and may end with rows that are padding.
  int64_t tokens = 0, first_row = 0;
  comm::Communicator* tensor = nullptr;  // ranks that compute a loss together
};

class Block {
 public:
  virtual ~Block() = default;
  const std::string& name() const { return name_; }
  // The groups whose weights this block reads; a tied group is listed by each of its blocks.
  const std::vector<std::shared_ptr<ParameterGroup>>& groups() const { return groups_; }
  virtual Tuple forward(const Tuple& x, const Context& context) = 0;

  // Whether backward() is the block's own. Such a block's graph holds no tensor.
  virtual bool has_backward() const { return false; }
  // Gradients of the inputs from those of the outputs; adds those of its parameters, of which none may be left out.
  virtual Tuple backward(const Tuple& dy, const Context& context);

  // Of the whole model, by which random numbers and caches are keyed: parts of a layer have the layer's. -1 = its place
  // in the chain.
  int layer() const { return layer_; }
  void set_layer(int layer) { layer_ = layer; }

 protected:
  Block(std::string name, std::vector<std::shared_ptr<ParameterGroup>> groups)
      : name_(std::move(name)), groups_(std::move(groups)) {}

 private:
  std::string name_;
  std::vector<std::shared_ptr<ParameterGroup>> groups_;
  int layer_ = -1;
};

struct LossResult {
  double sum = 0;     // of the token losses, in nats, summed in fp64; not weighted
  int64_t count = 0;  // tokens with a target
  Tuple dx = {};      // gradient of weight * sum for each input tensor; empty without gradients
};

class DeferredGradients;

class LossBlock : public Block {
 public:
  // x as the block before gives it; targets int64 [B, T], a negative one is not counted. With gradients, the groups'
  // gradients must be attached; contributions are added as Parameter::take_beta() says, and left complete. With `later`
  // those of weights are left to it, which keeps the gradients of all logits until they are made.
  virtual LossResult loss(const Tuple& x, const at::Tensor& targets, const Context& context, bool with_gradients,
                          DeferredGradients* later = nullptr) = 0;
  // forward() gives the logits [B, T, V]: for sampling, where T is small.

 protected:
  using Block::Block;
};

}  // namespace herd::nn
