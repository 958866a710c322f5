// Binds the ops of a training step to a chain of blocks: load, forward, loss, recompute, backward, gather, reduce,
// norm, clip, step, send, receive, release. It also binds logits, an op of the passes that continue texts
// (program/generation_passes.h). It holds values that are tensors from the op that writes them to the last op that
// reads them.
//
// A loss is (sum, count). The gradients are those of the sum over all ranks and micro-batches, divided by the global
// count. So the only division is the weight that every loss op gets, and reductions are plain sums.
// Threads: bindings run on the compute lane, but for gather, reduce, send and receive, which only start operations, and
//   the releases of what these read. All else one at a time.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "herd/bridge/attachable_storage.h"
#include "herd/nn/block.h"
#include "herd/nn/key_value_cache.h"
#include "herd/nn/run_block.h"
#include "herd/optim/loss_scale.h"
#include "herd/runtime/axis_groups.h"
#include "herd/runtime/bindings.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::runtime {

using Chain = std::vector<std::shared_ptr<nn::Block>>;  // the last one is a LossBlock

// Holds one micro-batch of a rank: B sequences of T tokens.
struct Batch {
  at::Tensor inputs_BT;               // int64
  at::Tensor targets_BT;              // int64, negative = not counted
  std::vector<int64_t> samples = {};  // global index of each row
};

struct StepInput {
  std::vector<Batch> micro_batches;
  double weight = 1;          // weight of each token's loss: 1 / tokens that count, over all ranks
  int64_t cached_tokens = 0;  // for a pass that continues texts: tokens of each sequence that the caches hold
};
struct StepOutput {
  double loss_sum = 0;  // nats, over this rank's tokens that count
  int64_t count = 0;    // this rank's tokens that count
  // Norm of the global gradient, before clipping; NaN where the step does not ask for it.
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();
  float gradient_factor = 1;  // factor of the gradient in the update; negative = it overflowed, nothing was updated
  // True where the norm is NaN or infinite, on all ranks. Then clipping throws kBadConfig on all of them, and no weight
  // changes. train/nonfinite.h finds the block.
  bool nonfinite = false;
};

// Updates the weights of one group with gradient * *factor; `step` counts updates from 0.
using GroupUpdate = std::function<void(int group, const float* factor, int64_t step)>;

class ModelBindings {
 public:
  struct Options {
    bool training = true;    // false: dropout is off
    bool inference = false;  // true: no op needs a graph, so torch keeps no record of views and versions
    uint64_t seed = 0;
    double clip = 0;  // largest global norm; 0 = no clipping
    bool stop_on_nonfinite = true;
    std::optional<optim::LossScale> loss_scale = {};  // for fp16: an overflow skips the update instead of stopping
    std::string algorithm = {};    // algorithm of gradient all-reduces on algorithm_axis; empty = the cost model's
    int algorithm_axis = kNoAxis;  // other axes, such as that of a tied embedding, take the cost model's choice
    int64_t width = 0;             // last size of activations [B, T, width]; receives need it
  };
  // Borrows `chain`, `parameters` and `groups`, which must outlive this.
  ModelBindings(const Chain& chain, FlatParameters& parameters, const AxisGroups& groups, GroupUpdate update,
                Options options);

  BindingTable table();
  // Allocates the caches that a pass has. Programs with the same caches share them afterwards.
  void allocate_caches(const program::Program& pass);
  void begin_step(StepInput input);
  const StepOutput& output() const { return output_; }
  // Returns the tensor of an activation, its gradient, or logits [B, V] (fp32, contiguous, CPU); undefined where the
  // value holds nothing.
  at::Tensor find(const program::Value& value) const;
  void put(const program::Value& value, at::Tensor tensor);
  // Returns an uninitialised tensor of the shape that an activation or its gradient has on this rank.
  at::Tensor empty(const program::Value& value) const;
  const std::optional<optim::LossScale>& loss_scale() const { return options_.loss_scale; }
  void set_loss_scale(const optim::LossScale& scale) { options_.loss_scale = scale; }

 private:
  struct KeptGraph {
    nn::Graph graph;
    std::vector<int> inputs;  // activations that the graph is a function of
    // Holds the memory of the input where backward gathers it again: until then the graph has none.
    std::unique_ptr<AttachableStorage> gathered = nullptr;
  };
  nn::Context context(const program::Op& op, int64_t step) const;
  void load(const program::Op& op);
  void forward(const program::Op& op, int64_t step);
  void loss(const program::Op& op, int64_t step);
  void logits(const program::Op& op, int64_t step);
  void recompute(const program::Op& op, int64_t step);
  void backward(const program::Op& op);
  nn::DeferredGradients* second_half(const program::Op& op);
  void backward_weight(const program::Op& op);
  void norm(const program::Op& op);
  void clip(const program::Op& op);
  nn::Tuple inputs(const program::Op& op) const;
  KeptGraph graph_of(const program::Op& op, int64_t step);
  int64_t rows(int micro_batch) const;
  int64_t shard_rows(int micro_batch) const;
  EventPtr gather(const program::Op& op);
  EventPtr move_activation(const program::Op& op);
  EventPtr reduce(const program::Op& op);
  void evict(const program::Op& op);
  void fetch(const program::Op& op);
  void recode(const program::Op& op);
  EventPtr send(const program::Op& op);
  EventPtr receive(const program::Op& op);
  OpOptions summing(const program::Op& op) const;
  std::vector<Work> reduce_whole(const program::Op& op, Communicator& comm);
  std::vector<Work> reduce_shards(const program::Op& op, Communicator& comm);
  std::vector<Work> reduce_to_shards(const program::Op& op, Communicator& comm);
  std::vector<Work> reduce_norms(const program::Op& op, Communicator& comm);
  void hold(const program::Op& op);
  void release(const program::Op& op);
  void begin_gradients(const program::Op& op);

  const Chain& chain_;
  FlatParameters& parameters_;
  const AxisGroups& groups_;
  GroupUpdate update_;
  Options options_;
  StepInput input_;
  StepOutput output_;
  mutable std::mutex mutex_;                                  // guards tensors_, which several lanes change
  std::map<program::Value, at::Tensor> tensors_;              // activations, their gradients, logits
  std::map<program::Value, KeptGraph> graphs_;                // the compute lane alone uses it, as the next two
  std::map<program::Value, nn::DeferredGradients> pending_;   // second halves of backward passes
  std::map<int, std::unique_ptr<nn::KeyValueCache>> caches_;  // by block
  std::vector<double> squares_;                               // by group: sum of squares of the gradient
  float factor_ = 1;  // factor of the last clip; updates on another lane may read it while the next step begins
};

}  // namespace herd::runtime
