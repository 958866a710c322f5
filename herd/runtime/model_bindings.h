// Bindings of a training step to a chain of blocks: load, forward, loss, recompute, backward, gather, reduce, norm,
// clip, step, send, receive, release; and of the passes that continue texts (program/generation_passes.h): logits.
// Values that are tensors live here between the op that writes them and the last that reads them.
//
// Losses are (sum, count): the gradients are those of sum over all ranks and micro-batches / global count, so the only
// division is the weight that every loss op gets, and reduces are plain sums.
// Threads: bindings run on the compute lane, but for gather, reduce, send and receive, which only start operations, and
//   the releases of what these read. One at a time otherwise.
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

// One micro-batch of a rank; B sequences, T tokens.
struct Batch {
  at::Tensor inputs_BT;               // int64
  at::Tensor targets_BT;              // int64, negative = not counted
  std::vector<int64_t> samples = {};  // global index of each row
};

// What one step needs from outside, and what it says when it is over.
struct StepInput {
  std::vector<Batch> micro_batches;
  double weight = 1;  // 1 / tokens that count, over all ranks
  int64_t past = 0;   // of a pass that continues texts: tokens of each sequence that the caches hold
};
struct StepOutput {
  double loss_sum = 0;  // of this rank's tokens, in nats
  int64_t count = 0;    // this rank's tokens
  // Of the global gradient, before clipping; NaN where the step does not ask for it.
  double norm = std::numeric_limits<double>::quiet_NaN();
  float factor = 1;        // what the gradient was multiplied with; negative = it overflowed, nothing is updated
  bool nonfinite = false;  // the norm is NaN or infinite, on all ranks; then clipping throws kBadConfig, on all of
                           // them, and no weight is changed. train/nonfinite.h finds the block
};

// Updates the weights of one group with gradient * *factor; `step` counts updates from 0.
using GroupUpdate = std::function<void(int group, const float* factor, int64_t step)>;

class ModelBindings {
 public:
  struct Options {
    bool training = true;    // else dropout is off
    bool inference = false;  // no op makes a graph of what another gives: torch keeps no record of views and versions
    uint64_t seed = 0;
    double clip = 0;  // largest global norm; 0 = none
    bool stop_on_nonfinite = true;
    std::optional<optim::LossScale> loss_scale = {};  // for fp16: an overflow skips the update instead of stopping
    std::string algorithm = {};    // of the gradient all-reduce along `algorithm_axis`; empty: chosen by its cost
    int algorithm_axis = kNoAxis;  // other axes, such as that of a tied embedding, choose theirs by cost
    int64_t width = 0;             // of what blocks hand on, [B, T, width]; for receives alone
  };
  // Borrows all of them; they must outlive this.
  ModelBindings(const Chain& chain, FlatParameters& parameters, const AxisGroups& groups, GroupUpdate update,
                Options options);

  BindingTable table();
  // Takes the memory of the caches that a pass has, which programs with the same ones share from here on.
  void allocate_caches(const program::Program& pass);
  void begin_step(StepInput input);
  const StepOutput& output() const { return output_; }
  // The tensor of an activation, its gradient, or logits [B, V] (fp32, contiguous, CPU); undefined where it holds
  // nothing.
  at::Tensor find(const program::Value& value) const;
  void put(const program::Value& value, at::Tensor tensor);
  // Of the shape that an activation or its gradient has here, uninitialised.
  at::Tensor empty(const program::Value& value) const;
  const std::optional<optim::LossScale>& loss_scale() const { return options_.loss_scale; }
  void set_loss_scale(const optim::LossScale& scale) { options_.loss_scale = scale; }

 private:
  struct Held {
    nn::Graph graph;
    std::vector<int> inputs;  // activations that it is a function of
    // Memory of its input, where backward reads that again: the graph has none of it in between.
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
  Held graph_of(const program::Op& op, int64_t step);
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
  mutable std::mutex mutex_;                                  // of tensors_: lanes put and drop values of their own
  std::map<program::Value, at::Tensor> tensors_;              // activations, their gradients, logits
  std::map<program::Value, Held> graphs_;                     // of the compute lane alone
  std::map<program::Value, nn::DeferredGradients> pending_;   // likewise
  std::map<int, std::unique_ptr<nn::KeyValueCache>> caches_;  // likewise, by block
  std::vector<double> squares_;                               // per group
  float factor_ = 1;  // of the newest clip; steps on another lane may read it while the next step begins
};

}  // namespace herd::runtime
