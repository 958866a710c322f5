// Defines what a model is made of: a chain of blocks, each a function from a tuple of tensors to a tuple of tensors.
//
// The last block of a chain is a LossBlock: it computes loss, input gradient and weight gradient together. The
// functions of run_block.h run one block forward and backward; runtime does so in the order of a Program.
// Shapes: B sequences, T tokens, D width, V vocabulary.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "herd/nn/parameter_group.h"
#include "herd/nn/token_cut.h"

namespace herd::comm {
class Communicator;
}

namespace herd::nn {

class KeyValueCache;
struct KeptRouting;
class RecordedRouting;

using Tuple = std::vector<at::Tensor>;

// Holds what a forward pass may depend on besides weights and input. It keys everything random (dropout.h).
struct Context {
  bool training = false;  // false: dropout is off
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples = {};  // global sample index of each of the B rows; required where dropout > 0
  int layer = 0;                      // layer of the block in the whole model, so that stages draw what the whole would
  // LossBlock: gradients are those of loss_weight * sum of token losses. Usually it is 1 / tokens that count over all
  // ranks, times the loss scale.
  double loss_weight = 1;
  // While generating, x holds only the tokens after the first `past`. The block's attention has the keys and values of
  // these in its cache (key_value_cache.h), and adds those of x.
  int64_t past = 0;
  KeyValueCache* cache = nullptr;
  // For blocks that are parts of a layer, values are rows: row r is token r % tokens of sample r / tokens of its
  // micro-batch; where `cut` has parts, r % cut.size() of this rank's tokens. A shard of rows begins with first_row,
  // and may end with rows of padding.
  int64_t tokens = 0, first_row = 0;
  // Places among the B x T tokens of whole sequences at which a document begins, in order (documents.h); empty = each
  // sequence is one document.
  std::vector<int64_t> document_begins = {};
  TokenCut cut = {};  // which tokens of its sequences x holds, where ranks share them; whole ones without it
  comm::Communicator* tensor_ranks =
      nullptr;  // ranks that run the block together: a loss, a ring, a router of parts of sequences
  at::Tensor counted_B1 =
      {};  // LossBlock: share of each whole sequence's tokens that count; undefined = of the targets
  // Where passes over a micro-batch share what a router chooses: the first one fills it, later ones take it over.
  KeptRouting* routing = nullptr;
  // True in the first pass of training over a micro-batch, in which blocks change their buffers and count what they
  // meet; false where a pass is computed again, and in all others.
  bool updates_buffers = false;
  // In such passes, where routers record what they choose, and what they choose in place of the largest scores; null =
  // nowhere, and nothing.
  RecordedRouting* recorded = nullptr;
  const RecordedRouting* replayed = nullptr;
};

// Holds a tensor of a block that its passes change and no optimizer updates, such as a batch norm's running mean.
// Checkpoints hold it beside the weights.
struct Buffer {
  std::string name;  // global, as ParameterSpec::name
  at::Tensor value;
};

class Block {
 public:
  virtual ~Block() = default;
  const std::string& name() const { return name_; }
  // Returns the groups whose weights this block reads; each block of a tied group lists it.
  const std::vector<std::shared_ptr<ParameterGroup>>& groups() const { return groups_; }
  virtual Tuple forward(const Tuple& x, const Context& context) = 0;

  // Tells whether backward gives a gradient of an input that is a floating tensor.
  virtual bool differentiates_input(size_t) const { return true; }
  // Tells whether the block has its own backward(). Such a block's graph holds no tensor.
  virtual bool has_backward() const { return false; }
  // Returns the gradients of the inputs from those of the outputs, and adds those of all its parameters.
  virtual Tuple backward(const Tuple& dy, const Context& context);

  // Runs a pass of autograd through the block's graph. A block of the user's code names itself in what that throws.
  virtual void run_autograd(const std::function<void()>& pass) const { pass(); }

  virtual std::vector<Buffer> buffers() const { return {}; }  // where this rank runs the block

  // Returns the layer in the whole model, which keys random numbers; parts of a layer have the layer's. -1 = the
  // block's index in the chain.
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
  double sum = 0;     // sum of the token losses, in nats, in fp64; not weighted
  int64_t count = 0;  // tokens with a target
  // On a device: the sum and the count, fp64 [2], which stay there; `sum` and `count` are then 0.
  at::Tensor on_device = {};
  Tuple dx = {};                     // gradient of loss_weight * sum for each input tensor; empty without gradients
  std::vector<double> figures = {};  // further sums over what counts, without gradients; of an own loss alone
};

class DeferredGradients;

// Its forward() returns the logits [B, T, V], for sampling, where T is small.
class LossBlock : public Block {
 public:
  // Computes the loss of x, the output of the block before; targets are int64 [B, T], and a negative one does not
  // count. With gradients, the groups' gradients must be attached; it adds contributions as Parameter::take_beta()
  // says, and leaves them complete. With `deferred`, loss() leaves the gradients of weights to it; it keeps the
  // gradients of all logits until it runs.
  virtual LossResult loss(const Tuple& x, const at::Tensor& targets, const Context& context, bool with_gradients,
                          DeferredGradients* deferred = nullptr) = 0;

 protected:
  using Block::Block;
};

}  // namespace herd::nn
