// Binds the ops of a training step to a chain of blocks: each kind of op gets a function on tensors and collectives.
// Ops kLogits are for passes that continue texts (program/generation_passes.h). Activations, their gradients and graphs
// live here, from the op that writes them to their release. FlatParameters holds weights and gradients.
//
// A loss is (sum, count). Gradients are those of the sum over all ranks and micro-batches, divided by the global count.
// That division is StepInput::weight, which multiplies every loss, so reductions are plain sums.
// Threads: one at a time, but for bindings. They run on their lanes; those of asynchronous lanes only start operations.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "herd/bridge/attachable_storage.h"
#include "herd/bridge/staged_copies.h"
#include "herd/nn/block.h"
#include "herd/nn/key_value_cache.h"
#include "herd/nn/mixture.h"
#include "herd/nn/run_block.h"
#include "herd/optim/loss_scale.h"
#include "herd/program/expert_traffic.h"
#include "herd/runtime/axis_groups.h"
#include "herd/runtime/bindings.h"
#include "herd/runtime/encoded_gradients.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/served_parameters.h"
#include "herd/spec/model_table.h"

namespace herd::runtime {

using Chain = std::vector<std::shared_ptr<nn::Block>>;  // blocks in the order in which they run, a LossBlock last

// Holds one micro-batch of a rank: B whole sequences of T tokens, of which context-parallel ranks load a part each, or
// the tensors of a chain of own blocks.
struct Batch {
  at::Tensor inputs_BT;               // token ids, int64
  at::Tensor targets_BT;              // labels, int64; a negative one does not count
  std::vector<int64_t> samples = {};  // global sample index of each sequence, which keys dropout
  // Places among the B x T tokens at which documents begin, where sequences are packed; else empty. Like `samples`, it
  // is known on every rank and stage, and takes no device memory.
  std::vector<int64_t> document_begins = {};
  // Tensors of a chain's batch, in the order of its table; the first dimension counts samples. A micro-batch without
  // samples has one row, which stands in for them and adds nothing. Empty where inputs_BT is the batch.
  nn::Tuple tensors = {};
  int64_t tokens = 1;  // tokens of each sample of `tensors`, where their number differs between micro-batches
  const at::Tensor& tensor(int number) const {
    return tensors.empty() ? inputs_BT : tensors.at(static_cast<size_t>(number));
  }
  bool has_no_samples() const { return !tensors.empty() && samples.empty(); }
};

// Holds what one step needs from outside.
struct StepInput {
  std::vector<Batch> micro_batches;
  double weight = 1;          // multiplies every loss: 1 / tokens that count, over all ranks and micro-batches
  int64_t cached_tokens = 0;  // tokens of each sequence that the caches hold, in a pass that continues texts; else 0
};

// Holds the results of one step.
struct StepOutput {
  double loss_sum = 0;               // sum of the losses of this rank's tokens, in nats
  int64_t count = 0;                 // tokens of this rank that count
  std::vector<double> figures = {};  // further sums over them, of an own loss without gradients
  // L2 norm of the global gradient before clipping; NaN where the step has no clip op.
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();
  // Tells that the norm is NaN or infinite, on all ranks alike. Clipping then throws kBadConfig on all ranks, on a
  // device once its norm is read, and no weight is changed. train/nonfinite.h finds the block.
  bool nonfinite = false;
};

// Updates the weights of one group, or of a piece of it (FlatParameters::num_pieces), with gradient * *factor. It is
// not called for a step whose fp16 gradients overflowed. `step` counts the updates before; skipped ones do not count.
using GroupUpdate = std::function<void(int group, int piece, const float* factor, int64_t step)>;

class ModelBindings {
 public:
  struct Options {
    bool training = true;           // false: dropout is off
    bool updates_buffers = false;   // true: the first pass over each micro-batch changes the buffers of its blocks
    bool inference = false;         // true: no op needs a graph, so torch records no views and versions
    uint64_t seed = 0;              // keys dropout
    double clip = 0;                // largest global norm of the gradient; 0 = no limit
    bool stop_on_nonfinite = true;  // true: clipping throws where the norm is NaN or infinite
    std::optional<optim::LossScale> loss_scale = {};  // for fp16: while it can shrink, an overflow skips the update
    // Names the algorithm that all-reduces whole gradients along `algorithm_axis`; empty = chosen by its cost. Other
    // axes, such as that of a tied embedding, choose theirs by cost.
    std::string algorithm = {};
    int algorithm_axis = kNoAxis;
    EncodedGradients* encoded = nullptr;  // what the step's codec keeps; null where its gradients have none
    ServedParameters* served = nullptr;   // the step's parameter servers; null where ranks update by themselves
    bool delays_updates = false;          // true: kStep works on the gradients of the step before (delayed_update.h)
    int64_t width = 0;                    // elements of an activation for each token; only receives need it
    double link_bytes_per_us = 0;         // rate to which copies between device and host are slowed; 0 = not slowed
    // Shapes of tensors whose extents it lists; null where `width` says those of all. It must outlive the bindings.
    const spec::ModelTable* table = nullptr;
    nn::RecordedRouting* recorded = nullptr;        // what routers choose in training is added to it; null = nowhere
    const nn::RecordedRouting* replayed = nullptr;  // what they choose instead of the largest scores; null = nothing
  };
  // Borrows `chain`, `parameters` and `groups`, which must outlive this.
  ModelBindings(const Chain& chain, FlatParameters& parameters, const AxisGroups& groups, GroupUpdate update,
                Options options);

  BindingTable table();  // returns functions that borrow this
  // Allocates the caches that a pass names and that have no memory yet. All programs run on this share them.
  void allocate_caches(const program::Program& pass);
  // Sets the input of the next step, and clears the output. The step throws kBadConfig where the input has fewer
  // micro-batches than its program. REQUIRES that no step runs.
  void begin_step(StepInput input);
  // Returns the results of the newest step. A device computes them without a wait of the host, so this waits for them.
  // Throws kBadConfig where a device's norm ends the run. REQUIRES that the step's compute lane has run, and its
  // thread.
  const StepOutput& output();
  // Returns the bytes that this rank has sent to ranks of other experts since begin_step(). REQUIRES as output().
  const program::ExpertBytes& expert_bytes() const { return expert_bytes_; }
  bool is_nonfinite() const { return output_.nonfinite; }  // StepOutput::nonfinite, as far as it is known
  double loss_so_far() const;                              // in the middle of a step. Waits for a device.
  // Returns the tensor of an activation, its gradient, or logits [B, V] (fp32, contiguous, CPU); an undefined one where
  // the value holds nothing.   Threads: any.
  at::Tensor find_tensor(const program::Value& value) const;
  void set_tensor(const program::Value& value, at::Tensor tensor);  // gives a value its tensor.   Threads: any.
  // Returns a new uninitialised tensor of the shape that an activation or its gradient has in this step.
  at::Tensor empty(const program::Value& value) const;
  // Returns the lanes that these bindings run a program on: those of the parameters' device.
  LaneFactory lanes_of(const program::Program& step) const { return runtime::lanes_of(step, parameters_.device()); }
  // These are of bindings that delay updates: whether a gradient waits for its update, and the factor that clips it. A
  // run begins without one. Set before the first step; read after drain().
  bool has_waiting_gradient() const { return has_waiting_gradient_ || (options_.delays_updates && steps_begun_ > 0); }
  float waiting_factor() const;
  void set_waiting_gradient(float factor);
  const std::optional<optim::LossScale>& loss_scale() const { return options_.loss_scale; }
  void set_loss_scale(const optim::LossScale& scale) { options_.loss_scale = scale; }

 private:
  struct KeptGraph {
    nn::Graph graph;
    std::vector<spec::TensorId> inputs;  // tensors that the block has read, in order
    // Memory of the graph's input where backward reads that again: attached for the pass, and none in between.
    std::unique_ptr<AttachableStorage> gathered = nullptr;
  };
  nn::Context context(const program::Op& op, int64_t step);
  void load_inputs(const program::Op& op);
  at::Tensor on_device(const program::Value& value, const at::Tensor& from);
  void forward(const program::Op& op, int64_t step);
  void loss(const program::Op& op, int64_t step);
  void logits(const program::Op& op, int64_t step);
  void recompute(const program::Op& op, int64_t step);
  void backward(const program::Op& op);
  // Gives the gradients of what a block has read to the op's values, or adds them; an undefined one is zero.
  void set_input_gradients(const program::Op& op, const std::vector<spec::TensorId>& inputs, const nn::Tuple& dx);
  // Returns what collects the gradients of weights that an op leaves to kBackwardWeight; null where it leaves none.
  nn::DeferredGradients* deferred_of(const program::Op& op);
  void backward_weight(const program::Op& op);
  void add(const program::Op& op);
  void norm(const program::Op& op);
  void norm_on_device(const program::Op& op);
  void clip(const program::Op& op);
  void clip_on_device(const program::Op& op);
  void check_norm(double norm);
  void step(const program::Op& op, int64_t step);
  nn::Tuple inputs(const program::Op& op) const;
  KeptGraph graph_of(const program::Op& op, int64_t step);
  const Batch& batch(int micro_batch) const;  // throws kBadConfig where the step's input has fewer micro-batches
  nn::TokenCut cut(int micro_batch) const;    // returns which tokens of its sequences this rank has
  int64_t rows(int micro_batch) const;        // returns the tokens of a micro-batch on this rank
  int64_t shard_rows(int micro_batch) const;  // returns the rows of a shard of its activations, padding included
  EventPtr gather(const program::Op& op);
  EventPtr broadcast(const program::Op& op);
  EventPtr reduce_to_owner(const program::Op& op);
  EventPtr move_activation(const program::Op& op);
  EventPtr exchange(const program::Op& op);  // sends a slice of an activation to each rank
  EventPtr exchange_terms(const program::Op& op);
  EventPtr exchange_rows(const program::Op& op);
  EventPtr tell_counts(const program::Op& op);
  void count_sent(const program::Op& op, int64_t bytes);
  // One for each block and micro-batch, whatever its placement.   Threads: any.
  nn::KeptRouting& new_routing(const program::Value& value);
  nn::KeptRouting& routing_of(const program::Value& value);
  // Returns the host of each rank of an axis (nn::hosts_of_ranks()); used by the lane of activations alone.
  const std::vector<int>& hosts_of(int axis, const Communicator& comm);
  EventPtr reduce(const program::Op& op, int64_t step);
  // Sums gradients in a codec that keeps what it loses. Works between the messages, so it returns only in the midst.
  std::vector<Work> reduce_encoded(const program::Op& op, int64_t step, Communicator& comm);
  void evict(const program::Op& op);
  void fetch(const program::Op& op, int64_t step);
  void evict_activation(const program::Value& value);
  void fetch_activation(const program::Value& value);
  // Returns the memory on the host of an activation as a tensor of the form that it has on the device.
  at::Tensor waiting_on_host(const program::Value& value) const;
  void copy_over_link(const at::Tensor& from, const at::Tensor& to) const;
  using Clock = std::chrono::steady_clock;
  // Waits until the link that the run emulates has moved so many bytes since `begin`.
  void wait_for_link(Clock::time_point begin, int64_t bytes) const;
  int64_t direct_bytes(const program::Op& op) const;  // returns the bytes that a pass reads of weights on the host
  void push(const program::Op& op, int64_t step);
  void recode(const program::Op& op, int64_t step);  // copies values into another codec
  EventPtr send(const program::Op& op);
  EventPtr receive(const program::Op& op);
  OpOptions sum_options(const program::Op& op) const;  // returns the options of an all-reduce of gradients
  // Sums whole gradients; neighbouring groups are one message.
  std::vector<Work> reduce_whole(const program::Op& op, Communicator& comm);
  // Sums shards over the ranks that hold the same shard.
  std::vector<Work> reduce_shards(const program::Op& op, Communicator& comm);
  // Sums whole gradients into shards, and adds what the shard held before where the op reads it.
  std::vector<Work> reduce_to_shards(const program::Op& op, Communicator& comm);
  std::vector<Work> reduce_norms(const program::Op& op, Communicator& comm);
  void attach_memory(const program::Op& op);  // attaches the weights that an op reads and the gradients that it writes
  void release(const program::Op& op);
  // Begins the gradients that the op writes and does not read: the first op of a step that touches them.
  void begin_gradients(const program::Op& op);

  const Chain& chain_;
  FlatParameters& parameters_;
  const AxisGroups& groups_;
  GroupUpdate update_;
  Options options_;
  StepInput input_;
  std::set<std::pair<int, int>> begun_;  // (block, micro-batch) that a pass of this step has run
  StepOutput output_;
  mutable std::mutex mutex_;                      // guards tensors_ and routings_, which all lanes use
  std::map<program::Value, at::Tensor> tensors_;  // activations, their gradients, logits
  std::map<program::Value, at::Tensor> waiting_;  // by activation that was evicted: a tensor of its form without memory
  // What was loaded in this step, while something holds it; used by the compute lane alone.
  std::map<program::Value, c10::weak_intrusive_ptr<c10::StorageImpl>> loaded_;
  std::map<program::Value, KeptGraph> graphs_;               // used by the compute lane alone
  std::map<program::Value, nn::DeferredGradients> pending_;  // used by the compute lane alone
  std::map<program::Value, nn::KeptRouting> routings_;
  std::map<int, std::vector<int>> hosts_of_axes_;             // used by the lane of activations alone
  program::ExpertBytes expert_bytes_ = {};                    // of this step; used by the lane of activations alone
  std::map<int, std::unique_ptr<nn::KeyValueCache>> caches_;  // by block; used by the compute lane alone
  std::vector<double> squared_norms_;                         // sum of squares of each group's gradient
  // Factor of the newest clip; negative: fp16 gradients overflowed, and kStep updates nothing. A kStep on another lane
  // may read it while the next step begins.
  float factor_ = 1;
  bool has_waiting_gradient_ = false;  // where updates are delayed: the first step finds a gradient to update with
  int64_t steps_begun_ = 0;
  std::optional<int64_t> first_update_;  // step of the first kStep; used by the lane of updates alone
  int64_t skipped_ = 0;                  // steps that overflowed before the newest clip

  // The numbers of a step on a device, where passes and updates use them without a wait of the host.
  struct DeviceStep {
    explicit DeviceStep(c10::Stream stream, int num_groups);
    void copy_to_host();  // enqueues it, on this thread's stream

    c10::Stream compute_stream;  // that of passes
    StagedCopies batch;
    at::Tensor squared_norms;             // as squared_norms_, fp64
    at::Tensor totals;                    // fp64: sum of the losses, tokens that count, norm
    at::Tensor factor;                    // as factor_, fp32
    at::Tensor host_totals, host_factor;  // page-locked copies
    c10::Event on_host;                   // the copies are made
    bool has_norm = false;                // this step has one
    bool is_copied = false, is_read = true;
  };
  std::optional<DeviceStep> device_;
};

}  // namespace herd::runtime
