#include "herd/runtime/model_bindings.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/host_memory.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/nn/experts_of_ranks.h"
#include "herd/optim/clip.h"
#include "herd/optim/device_clip.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/runtime/executor.h"

namespace herd::runtime {
namespace {

using program::Op;
using program::OpKind;
using program::ValueKind;

constexpr int64_t kNoTarget = -1;  // label of a token that does not count

bool contains(const std::vector<program::Value>& values, ValueKind kind, int index) {
  return std::any_of(values.begin(), values.end(), [&](const auto& v) { return v.kind == kind && v.index == index; });
}

// Returns the indices of one kind among an op's values, ascending, each once.
std::vector<int> indices(const std::vector<program::Value>& values, ValueKind kind) {
  std::vector<int> found;
  for (const program::Value& value : values)
    if (value.kind == kind) found.push_back(value.index);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Returns the tensors that an op reads as activations, in the order of its block's inputs.
std::vector<spec::TensorId> tensors_in_order(const std::vector<program::Value>& values) {
  std::vector<spec::TensorId> found;
  for (const program::Value& value : values)
    if (value.kind == ValueKind::kActivation) found.push_back(program::tensor_of(value));
  return found;
}

// Returns the tensor's shape as the table states it; null where the model's family knows its sizes.
const spec::TensorShape* shape_of(const spec::ModelTable* table, spec::TensorId tensor) {
  if (table == nullptr) return nullptr;
  const auto& tensors =
      tensor.producer == 0 ? table->batch : table->blocks[static_cast<size_t>(tensor.producer) - 1].outputs;
  const auto number = static_cast<size_t>(tensor.tensor);
  if (table->is_chain()) return &tensors.at(number);
  return number < tensors.size() && !tensors[number].extents.empty() ? &tensors[number] : nullptr;
}

// Returns the sum of two gradients, in the memory of the first unless other tensors lie there: autograd may give one
// tensor as the gradient of several. REQUIRES that a table of tensors holds `sum_so_far`, too.
at::Tensor sum(at::Tensor sum_so_far, const at::Tensor& term) {
  constexpr size_t kHolders = 2;  // this function and the table
  const bool is_own = sum_so_far.use_count() <= kHolders && sum_so_far.storage().use_count() == 1 &&
                      sum_so_far.is_non_overlapping_and_dense() && sum_so_far.scalar_type() == term.scalar_type();
  return is_own ? sum_so_far.add_(term) : sum_so_far.add(term);
}

// Gathers the logits of the whole vocabulary, of which each rank has a part.
at::Tensor gather_words(const at::Tensor& own_BW, Communicator& comm) {
  const std::vector<int64_t> own = {own_BW.numel()};
  std::vector<int64_t> counts(static_cast<size_t>(comm.size()));
  comm.all_gather(own, counts, {.name = "sizes of logits"});
  const int64_t B = own_BW.size(0), all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const at::Tensor whole_VB = at::empty({all / B, B}, own_BW.options());
  comm.all_gather(own_BW.t().contiguous(), whole_VB, {.name = "logits", .counts = counts});
  return whole_VB.t();
}

// Reports the end of several operations. wait() frees their buffers, since an event lives until its op runs again.
class WorksEvent final : public Event {
 public:
  WorksEvent(std::vector<Work> works, c10::Device device) : works_(std::move(works)), device_(device) {}
  bool done() const override {
    const std::lock_guard lock(mutex_);
    return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.done(); });
  }
  void wait() override {
    std::vector<Work> works;
    {
      const std::lock_guard lock(mutex_);
      works = works_;
    }
    for (Work& work : works) work.wait();
    const std::lock_guard lock(mutex_);
    ended_at_ = latest_end(ended_at_);
    works_.clear();
  }
  void hold() override {
    if (device_.is_cpu()) return wait();
    std::vector<Work> works;
    {
      const std::lock_guard lock(mutex_);
      works = works_;
    }
    for (Work& work : works) work.hold(current_stream(device_));
  }
  Clock::time_point ended_at() const override {
    const std::lock_guard lock(mutex_);
    return latest_end(ended_at_);
  }

 private:
  Clock::time_point latest_end(Clock::time_point last) const {
    for (const Work& work : works_) last = std::max(last, work.finished_at());
    return last;
  }

  mutable std::mutex mutex_;
  std::vector<Work> works_;
  const c10::Device device_;
  Clock::time_point ended_at_;
};

}  // namespace

ModelBindings::ModelBindings(const Chain& chain, FlatParameters& parameters, const AxisGroups& groups,
                             GroupUpdate update, Options options)
    : chain_(chain),
      parameters_(parameters),
      groups_(groups),
      update_(std::move(update)),
      options_(std::move(options)),
      squared_norms_(static_cast<size_t>(parameters.num_groups()), 0.0) {
  const at::Device device = parameters.device();
  if (!device.is_cpu())
    device_.emplace(c10::impl::VirtualGuardImpl(device.type()).getStream(device), parameters.num_groups());
}

ModelBindings::DeviceStep::DeviceStep(c10::Stream stream, int num_groups)
    : compute_stream(stream), batch(stream.device()), on_host(stream.device_type()) {
  const auto fp64 = at::TensorOptions(at::kDouble).device(stream.device());
  squared_norms = at::zeros({num_groups}, fp64);
  totals = at::zeros({3}, fp64);
  factor = at::ones({1}, fp64.dtype(at::kFloat));
  host_totals = host_zeros(3, at::kDouble, stream.device());
  host_factor = host_zeros(1, at::kFloat, stream.device()).fill_(1);
}

void ModelBindings::DeviceStep::copy_to_host() {
  host_totals.copy_(totals, /*non_blocking=*/true);
  host_factor.copy_(factor, /*non_blocking=*/true);
  on_host.record(compute_stream);
  is_copied = true;
}

BindingTable ModelBindings::table() {
  auto without_event = [](auto function) -> Binding {
    return [function](const Op& op, int64_t step) -> EventPtr {
      function(op, step);
      return nullptr;
    };
  };
  // Weights that a pass reads on the host come over the link while it runs. The CPU has none, and waits as if it had.
  auto pass = [this](auto function) -> Binding {
    return [this, function](const Op& op, int64_t step) -> EventPtr {
      const Clock::time_point begin = Clock::now();
      function(op, step);
      if (!device_) wait_for_link(begin, direct_bytes(op));
      return nullptr;
    };
  };
  BindingTable table;
  table[OpKind::kLoad] = without_event([this](const Op& op, int64_t) { load_inputs(op); });
  table[OpKind::kForward] = pass([this](const Op& op, int64_t step) { forward(op, step); });
  table[OpKind::kLoss] = pass([this](const Op& op, int64_t step) { loss(op, step); });
  table[OpKind::kLogits] = without_event([this](const Op& op, int64_t step) { logits(op, step); });
  table[OpKind::kRecompute] = pass([this](const Op& op, int64_t step) { recompute(op, step); });
  table[OpKind::kBackward] = pass([this](const Op& op, int64_t) { backward(op); });
  table[OpKind::kBackwardWeight] = without_event([this](const Op& op, int64_t) { backward_weight(op); });
  table[OpKind::kAllGather] = [this](const Op& op, int64_t) { return gather(op); };
  table[OpKind::kBroadcast] = [this](const Op& op, int64_t) { return broadcast(op); };
  table[OpKind::kReduce] = [this](const Op& op, int64_t) { return reduce_to_owner(op); };
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter})
    table[kind] = [this](const Op& op, int64_t step) { return reduce(op, step); };
  table[OpKind::kAllToAll] = [this](const Op& op, int64_t) { return exchange(op); };
  table[OpKind::kEvict] = without_event([this](const Op& op, int64_t) { evict(op); });
  table[OpKind::kFetch] = without_event([this](const Op& op, int64_t step) { fetch(op, step); });
  for (const OpKind kind : {OpKind::kEncode, OpKind::kDecode})
    table[kind] = without_event([this](const Op& op, int64_t step) { recode(op, step); });
  table[OpKind::kSend] = [this](const Op& op, int64_t) { return send(op); };
  table[OpKind::kReceive] = [this](const Op& op, int64_t) { return receive(op); };
  table[OpKind::kAdd] = without_event([this](const Op& op, int64_t) { add(op); });
  table[OpKind::kNorm] = without_event([this](const Op& op, int64_t) { norm(op); });
  table[OpKind::kClip] = without_event([this](const Op& op, int64_t) { clip(op); });
  table[OpKind::kStep] = without_event([this](const Op& op, int64_t number) { step(op, number); });
  table[OpKind::kPush] = without_event([this](const Op& op, int64_t step) { push(op, step); });
  table[OpKind::kPull] =
      without_event([this](const Op& op, int64_t) { options_.served->pull(op.writes.at(0).index, op.part); });
  table[OpKind::kRelease] = without_event([this](const Op& op, int64_t) { release(op); });
  return table;
}

void ModelBindings::allocate_caches(const program::Program& pass) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  for (const auto& [value, info] : pass.values) {
    if (value.kind == ValueKind::kCache && !caches_.contains(value.index))
      caches_[value.index] = std::make_unique<nn::KeyValueCache>(info.bytes, parameters_.device());
  }
}

void ModelBindings::begin_step(StepInput input) {
  if (device_) {
    output();  // the scale of the loss follows from the last step, and its batch is on the device then
    device_->batch.reuse();
    device_->totals.zero_();
    device_->has_norm = device_->is_copied = device_->is_read = false;
  }
  ++steps_begun_;
  input_ = std::move(input);
  output_ = {};
  loaded_.clear();
  begun_.clear();
  expert_bytes_ = {};
}

const StepOutput& ModelBindings::output() {
  if (!device_ || device_->is_read) return output_;
  device_->is_read = true;
  if (!device_->is_copied) device_->copy_to_host();
  if (!device_->on_host.query()) device_->on_host.synchronize();
  const auto* totals = device_->host_totals.const_data_ptr<double>();
  output_.loss_sum += totals[0];
  output_.count += static_cast<int64_t>(totals[1]);
  if (device_->has_norm) check_norm(totals[2]);
  return output_;
}

double ModelBindings::loss_so_far() const {
  return output_.loss_sum + (device_ && !device_->is_read ? device_->totals[0].item<double>() : 0);
}

at::Tensor ModelBindings::find_tensor(const program::Value& value) const {
  const std::lock_guard lock(mutex_);
  const auto at = tensors_.find(value);
  return at == tensors_.end() ? at::Tensor() : at->second;
}

void ModelBindings::set_tensor(const program::Value& value, at::Tensor tensor) {
  if (device_ && tensor.defined() && tensor.device() == device_->compute_stream.device()) {
    // Passes use the memory after the lane that it comes from is done with it: it is free once they are done, too.
    const c10::impl::VirtualGuardImpl guard(tensor.device().type());
    if (guard.getStream(tensor.device()) != device_->compute_stream)
      guard.recordDataPtrOnStream(tensor.storage().data_ptr(), device_->compute_stream);
  }
  const std::lock_guard lock(mutex_);
  tensors_[value] = std::move(tensor);
}

const Batch& ModelBindings::batch(int micro_batch) const {
  const size_t given = input_.micro_batches.size();
  if (static_cast<size_t>(micro_batch) < given) return input_.micro_batches[static_cast<size_t>(micro_batch)];
  throw Error(Code::kBadConfig, "the program runs micro-batch " + std::to_string(micro_batch) +
                                    ", but the input of the step has " + std::to_string(given) +
                                    (given == 1 ? " micro-batch" : " micro-batches") +
                                    "\n  fix: StepInput::micro_batches with as many as Program::micro_batches");
}

nn::TokenCut ModelBindings::cut(int micro_batch) const {
  const at::Tensor& inputs_BT = batch(micro_batch).inputs_BT;
  return {inputs_BT.defined() ? inputs_BT.size(1) : 0, groups_.context_place(), groups_.context_ranks(),
          groups_.context_zigzag()};
}

int64_t ModelBindings::rows(int micro_batch) const {
  return batch(micro_batch).inputs_BT.size(0) * cut(micro_batch).size();
}

int64_t ModelBindings::shard_rows(int micro_batch) const {
  const int64_t ranks = groups_.tensor_ranks();
  return (rows(micro_batch) + ranks - 1) / ranks;
}

at::Tensor ModelBindings::empty(const program::Value& value) const {
  const Batch& own = batch(value.micro_batch);
  const at::Tensor& inputs_BT = own.inputs_BT;
  if (const spec::TensorShape* shape = shape_of(options_.table, program::tensor_of(value))) {
    const int64_t samples =
        options_.table->is_chain() ? std::max<int64_t>(1, static_cast<int64_t>(own.samples.size())) : inputs_BT.size(0);
    return at::empty(shape->sizes(samples, own.tokens),
                     at::TensorOptions(scalar_type_of(shape->dtype)).device(parameters_.device()));
  }
  std::vector<int64_t> sizes = {inputs_BT.size(0), cut(value.micro_batch).size(), options_.width};
  if (groups_.tensor_ranks() > 1) sizes = {rows(value.micro_batch), options_.width};
  if (groups_.divides_rows(value)) sizes[0] = shard_rows(value.micro_batch);
  return at::empty(sizes, parameters_.weights().options());
}

nn::Context ModelBindings::context(const Op& op, int64_t step) {
  const Batch& own = batch(op.micro_batch);
  const int layer = chain_[op.block]->layer();
  nn::Context context;
  context.training = options_.training;
  context.seed = options_.seed;
  context.step = step;
  context.samples = own.samples;
  context.document_begins = own.document_begins;
  context.layer = layer >= 0 ? layer : op.block;
  context.loss_weight = input_.weight * (options_.loss_scale ? options_.loss_scale->scale() : 1);
  context.tokens = own.inputs_BT.defined() ? own.inputs_BT.size(1) : own.tokens;
  context.cut = cut(op.micro_batch);
  if (op.kind == OpKind::kLoss && context.cut.parts > 1)
    context.counted_B1 = own.targets_BT.ge(0).to(at::kDouble).mean(1, true);
  context.past = input_.cached_tokens;
  if (contains(op.writes, ValueKind::kCache, op.block)) context.cache = caches_.at(op.block).get();
  for (const program::Value& value : op.writes) {
    if (value.kind == ValueKind::kRouting) context.routing = &new_routing(value);
  }
  for (const program::Value& value : op.reads) {
    if (value.kind == ValueKind::kRouting) context.routing = &routing_of(value);
  }
  if (std::ranges::any_of(op.reads, [&](const program::Value& value) { return groups_.divides_rows(value); }))
    context.first_row = groups_.tensor_place() * shard_rows(op.micro_batch);
  if (op.axis != kNoAxis) context.tensor_ranks = &groups_.of(op.lane, op.axis);
  context.updates_buffers = options_.updates_buffers && begun_.insert({op.block, op.micro_batch}).second;
  context.recorded = options_.recorded;
  context.replayed = options_.replayed;
  return context;
}

// Copies what the op names of the batch to the device, where it is held until its release.
void ModelBindings::load_inputs(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  const Batch& own = batch(op.micro_batch);
  for (const program::Value& value : op.writes) {
    const bool is_target = value.kind == ValueKind::kTarget;
    const at::Tensor& from = is_target ? own.targets_BT : own.tensor(value.tensor);
    if (!from.defined()) continue;
    const nn::TokenCut tokens = cut(op.micro_batch);
    set_tensor(value,
               on_device(value, tokens.parts == 1 ? from : nn::own_columns(from, tokens, is_target ? kNoTarget : 0)));
  }
}

// A value has one memory: where a graph holds that of an earlier load, it is used again.
at::Tensor ModelBindings::on_device(const program::Value& value, const at::Tensor& from) {
  const bool stages = device_ && from.is_cpu();
  const auto at = loaded_.find(value);
  if (at != loaded_.end()) {
    if (const auto storage = at->second.lock()) {
      const at::Tensor again = at::empty({0}, from.options().device(parameters_.device()));
      return again.set_(c10::Storage(storage), 0, from.sizes(), stages ? at::IntArrayRef{} : from.strides());
    }
  }
  const at::Tensor copy = stages ? device_->batch.copy(from)
                                 : from.to(from.options().device(parameters_.device()), /*non_blocking=*/false,
                                           /*copy=*/true);
  loaded_.insert_or_assign(value, copy.storage().getWeakStorageImpl());
  return copy;
}

nn::Tuple ModelBindings::inputs(const Op& op) const {
  nn::Tuple x;
  for (const program::Value& value : op.reads) {
    if (value.kind == ValueKind::kActivation) x.push_back(find_tensor(value));
  }
  return x;
}

ModelBindings::KeptGraph ModelBindings::graph_of(const Op& op, int64_t step) {
  KeptGraph kept{.graph = {}, .inputs = tensors_in_order(op.reads)};
  nn::Tuple x = inputs(op);
  const auto without_inputs = [](const program::Value& value) {
    return value.kind == ValueKind::kGraph && value.placement.shard != 0;
  };
  if (std::any_of(op.writes.begin(), op.writes.end(), without_inputs)) {
    const at::Tensor whole = x.at(0);
    kept.gathered = std::make_unique<AttachableStorage>(whole.numel(), whole.scalar_type(), whole.device());
    kept.gathered->attach(whole);
    x[0] = kept.gathered->flat().view(whole.sizes());
  }
  kept.graph = nn::run_forward(*chain_[op.block], x, context(op, step));
  return kept;
}

void ModelBindings::forward(const Op& op, int64_t step) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  attach_memory(op);
  nn::Tuple y;
  if (contains(op.writes, ValueKind::kGraph, op.block)) {
    KeptGraph kept = graph_of(op, step);
    y = nn::take_outputs(kept.graph);
    if (kept.gathered) kept.gathered->detach();
    graphs_[program::graph(op.block, op.micro_batch)] = std::move(kept);
  } else {
    const c10::InferenceMode no_record(options_.inference);
    y = nn::run_without_graph(*chain_[op.block], inputs(op), context(op, step));
  }
  for (const program::Value& value : op.writes) {
    if (value.kind == ValueKind::kActivation) set_tensor(value, y.at(static_cast<size_t>(value.tensor)));
  }
}

// Computes the logits of the last row of each sequence; first frees those of the previous pass.
void ModelBindings::logits(const Op& op, int64_t step) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  attach_memory(op);
  set_tensor(op.writes.at(0), {});
  const c10::InferenceMode no_record(options_.inference);
  const at::Tensor& ids_BT = batch(op.micro_batch).inputs_BT;
  const int64_t B = ids_BT.size(0), T = ids_BT.size(1);
  const at::Tensor x = inputs(op).at(0);
  at::Tensor last = x.dim() == 3 ? x.narrow(1, T - 1, 1) : x.view({B, T, -1}).narrow(1, T - 1, 1).reshape({B, -1});
  last = nn::run_without_graph(*chain_[op.block], {last}, context(op, step)).at(0).view({B, -1});
  if (op.axis != kNoAxis) last = gather_words(last, groups_.of(op.lane, op.axis));
  set_tensor(op.writes[0], last.to(at::kCPU, at::kFloat).contiguous());
}

void ModelBindings::recompute(const Op& op, int64_t step) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  attach_memory(op);
  KeptGraph kept = graph_of(op, step);
  nn::take_outputs(kept.graph);
  if (kept.gathered) kept.gathered->detach();
  graphs_[program::graph(op.block, op.micro_batch)] = std::move(kept);
}

// Attaches the memory of the weights and gradients that a pass uses, if they are detached.
void ModelBindings::attach_memory(const Op& op) {
  for (const program::Value& value : op.reads) {
    if (value.kind != ValueKind::kWeight) continue;
    if (value.tier == program::Tier::kHost)
      parameters_.attach_on_host(value.index);
    else
      parameters_.attach(value.index);
  }
  for (const int group : indices(op.writes, ValueKind::kGradient)) parameters_.attach_gradient(group);
}

// Starts the gradients anew that an op writes without reading them.
void ModelBindings::begin_gradients(const Op& op) {
  for (int group : indices(op.writes, ValueKind::kGradient))
    if (!contains(op.reads, ValueKind::kGradient, group)) parameters_.group(group).begin_gradient();
}

void ModelBindings::loss(const Op& op, int64_t step) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  attach_memory(op);
  begin_gradients(op);
  auto& block = dynamic_cast<nn::LossBlock&>(*chain_[op.block]);
  const bool differentiates = std::any_of(op.writes.begin(), op.writes.end(), [](const program::Value& value) {
    return value.kind == ValueKind::kGradient || value.kind == ValueKind::kActivationGradient;
  });
  nn::LossResult result = block.loss(inputs(op), find_tensor(program::target(op.micro_batch)), context(op, step),
                                     differentiates, deferred_of(op));
  if (op.axis == kNoAxis || groups_.tensor_place() == 0) {  // all ranks of the tensor axis have the same loss
    output_.loss_sum += result.sum;
    output_.count += result.count;
    output_.figures.resize(std::max(output_.figures.size(), result.figures.size()));
    for (size_t i = 0; i < result.figures.size(); ++i) output_.figures[i] += result.figures[i];
    if (result.on_device.defined()) device_->totals.narrow(0, 0, 2).add_(result.on_device);
  }
  set_input_gradients(op, tensors_in_order(op.reads), result.dx);
}

void ModelBindings::set_input_gradients(const Op& op, const std::vector<spec::TensorId>& inputs, const nn::Tuple& dx) {
  for (const program::Value& value : op.writes) {
    if (value.kind != ValueKind::kActivationGradient) continue;
    const auto input = std::find(inputs.begin(), inputs.end(), program::tensor_of(value)) - inputs.begin();
    const at::Tensor& own = dx.at(static_cast<size_t>(input));
    const bool adds = std::find(op.reads.begin(), op.reads.end(), value) != op.reads.end();
    if (!own.defined())
      set_tensor(value, adds ? find_tensor(value) : empty(value).zero_());
    else
      set_tensor(value, adds ? sum(find_tensor(value), own) : own);
  }
}

void ModelBindings::backward(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  attach_memory(op);
  begin_gradients(op);
  auto kept = graphs_.extract(program::graph(op.block, op.micro_batch));
  HERD_CHECK(!kept.empty(), "no graph for block " + std::to_string(op.block));
  const std::vector<spec::TensorId> inputs = std::move(kept.mapped().inputs);
  if (batch(op.micro_batch).has_no_samples()) {  // what stands in for samples may give NaN, which times 0 is NaN
    nn::finish_gradients(kept.mapped().graph.groups, nullptr);
    return set_input_gradients(op, inputs, nn::Tuple(inputs.size()));
  }
  nn::Tuple dy(std::max<size_t>(1, kept.mapped().graph.outputs.size()));
  for (const program::Value& value : op.reads) {
    if (value.kind == ValueKind::kActivationGradient && value.index == op.block + 1)
      dy.at(static_cast<size_t>(value.tensor)) = find_tensor(value);
  }
  if (kept.mapped().gathered) kept.mapped().gathered->attach(this->inputs(op).at(0));
  set_input_gradients(op, inputs, nn::run_backward(std::move(kept.mapped().graph), dy, deferred_of(op)));
}

// Returns what computes the gradients of weights later; null if the op computes them itself.
nn::DeferredGradients* ModelBindings::deferred_of(const Op& op) {
  const bool splits = contains(op.writes, ValueKind::kPending, op.block);
  return splits ? &pending_[program::pending(op.block, op.micro_batch)] : nullptr;
}

void ModelBindings::backward_weight(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  attach_memory(op);
  begin_gradients(op);
  auto pending = pending_.extract(program::pending(op.block, op.micro_batch));
  HERD_CHECK(!pending.empty(), "nothing is pending of block " + std::to_string(op.block));
  pending.mapped().run();
}

nn::KeptRouting& ModelBindings::new_routing(const program::Value& value) {
  const std::lock_guard lock(mutex_);
  return routings_[program::routing(value.index, value.micro_batch)] = {};
}

nn::KeptRouting& ModelBindings::routing_of(const program::Value& value) {
  const std::lock_guard lock(mutex_);
  const auto found = routings_.find(program::routing(value.index, value.micro_batch));
  HERD_CHECK(found != routings_.end(), program::value_name({}, value) + " is read before a router has chosen");
  return found->second;
}

const std::vector<int>& ModelBindings::hosts_of(int axis, const Communicator& comm) {
  const auto [hosts, is_new] = hosts_of_axes_.try_emplace(axis);
  if (is_new) hosts->second = nn::hosts_of_ranks(comm);
  return hosts->second;
}

// Tells the ranks of an axis how many rows each has for their experts.
EventPtr ModelBindings::tell_counts(const Op& op) {
  Communicator& comm = groups_.of(op.lane, op.axis);
  nn::KeptRouting& routing = routing_of(op.reads.at(0));
  nn::tell_counts(routing, hosts_of(op.axis, comm), comm);
  count_sent(op, nn::sent_bytes(routing));
  return nullptr;
}

void ModelBindings::count_sent(const Op& op, int64_t bytes) {
  expert_bytes_[static_cast<size_t>(program::expert_way(op).value())] += bytes;
}

// Gives rows to the ranks of their experts, or brings them back.
EventPtr ModelBindings::exchange_rows(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  const nn::KeptRouting& routing = routing_of(op.reads.at(1));
  const at::Tensor rows = find_tensor(op.reads[0]);
  const int64_t before = nn::sent_bytes(routing);
  if (op.reads[0].placement.is_shard(op.axis)) {
    set_tensor(op.writes.at(0), nn::bring_back_rows(routing, rows));
  } else {
    at::Tensor of_tokens;
    if (op.reads.size() > 2) of_tokens = find_tensor(op.reads[2]).reshape({-1, rows.size(1)});
    set_tensor(op.writes.at(0), nn::give_rows(routing, rows, of_tokens));
  }
  count_sent(op, nn::sent_bytes(routing) - before);
  return nullptr;
}

EventPtr ModelBindings::gather(const Op& op) {
  if (gathers_routing(op)) return tell_counts(op);
  if (program::is_activation_or_gradient(op.reads.at(0))) return move_activation(op);
  Communicator& comm = groups_.of(op.lane, op.axis);
  std::vector<Work> works;
  for (size_t i = 0; i < op.reads.size(); ++i) {
    const at::Tensor from = parameters_.memory(op.reads[i]), to = parameters_.memory(op.writes[i]);
    // A shard of a host is made of pieces, each of which is gathered to its own place.
    const int64_t pieces =
        op.writes[i].placement.is_whole() ? parameters_.num_shards(op.writes[i].index) / comm.size() : 1;
    const int64_t size = from.numel() / pieces, whole = to.numel() / pieces;
    for (int64_t piece = 0; piece < pieces; ++piece)
      works.push_back(comm.all_gather_async(from.narrow(0, piece * size, size), to.narrow(0, piece * whole, whole),
                                            {.name = "weights"}));
  }
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

// Gives weights of their owner to the ranks of an axis. Where they are whole on the owner, too, they lie in one place.
EventPtr ModelBindings::broadcast(const Op& op) {
  Communicator& comm = groups_.of(op.lane, op.axis);
  std::vector<Work> works;
  for (size_t i = 0; i < op.writes.size(); ++i) {
    at::Tensor whole = parameters_.memory(op.writes[i]);
    const at::Tensor own = op.reads.empty() ? whole : parameters_.memory(op.reads.at(i));
    if (own.data_ptr() != whole.data_ptr()) whole.copy_(own);
    works.push_back(comm.broadcast_async(whole, op.peer, {.name = "weights"}));
  }
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

// Moves an activation or its gradient between ranks. Shards have equal sizes, so wholes are padded by rows of zeros.
EventPtr ModelBindings::move_activation(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  Communicator& comm = groups_.of(op.lane, op.axis);
  const program::Value &from = op.reads[0], &to = op.writes.at(0);
  const int64_t R = rows(from.micro_batch), S = shard_rows(from.micro_batch), padded = S * comm.size();
  at::Tensor tensor = find_tensor(from).contiguous();
  const OpOptions options{.name = program::kind_name(from.kind)};
  std::vector<Work> works;
  if (op.kind == OpKind::kAllReduce) {
    works.push_back(comm.all_reduce_async(tensor, options));
    set_tensor(to, tensor);
  } else if (op.kind == OpKind::kAllGather) {
    const at::Tensor whole = at::empty({padded, tensor.size(1)}, tensor.options());
    works.push_back(comm.all_gather_async(tensor, whole, options));
    set_tensor(to, whole.narrow(0, 0, R));
  } else {
    if (padded > R) {
      at::Tensor padded_tensor = at::empty({padded, tensor.size(1)}, tensor.options());
      padded_tensor.narrow(0, 0, R).copy_(tensor);
      padded_tensor.narrow(0, R, padded - R).zero_();
      tensor = padded_tensor;
    }
    const at::Tensor shard = at::empty({S, tensor.size(1)}, tensor.options());
    works.push_back(comm.reduce_scatter_async(tensor, shard, options));
    set_tensor(to, shard);
  }
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

// Slice p of the first dimension goes to place p of the axis; what place q has sent is slice q of the result. So tokens
// become heads and back (nn/context_parts.h).
EventPtr ModelBindings::exchange(const Op& op) {
  if (op.reads.at(0).kind == ValueKind::kGradient) return exchange_terms(op);
  if (moves_rows_of_experts(op)) return exchange_rows(op);
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  Communicator& comm = groups_.of(op.lane, op.axis);
  const at::Tensor from = find_tensor(op.reads.at(0)).contiguous(), to = at::empty_like(from);
  set_tensor(op.writes.at(0), to);
  std::vector<Work> works;
  works.push_back(comm.all_to_all_async(from, to, {.name = program::kind_name(op.reads[0].kind)}));
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

// Gives each rank what this one has encoded of its shard.
EventPtr ModelBindings::exchange_terms(const Op& op) {
  Communicator& comm = groups_.of(op.lane, op.axis);
  std::vector<Work> works;
  for (size_t i = 0; i < op.reads.size(); ++i) {
    works.push_back(comm.all_to_all_async(parameters_.memory(op.reads[i]), parameters_.memory(op.writes.at(i)),
                                          {.name = "gradient"}));
  }
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

EventPtr ModelBindings::reduce(const Op& op, int64_t step) {
  if (program::is_activation_or_gradient(op.reads.at(0))) return move_activation(op);
  Communicator& comm = groups_.of(op.lane, op.axis);
  std::vector<Work> works = program::keeps_residuals(op.writes[0].codec) ? reduce_encoded(op, step, comm)
                            : op.writes[0].kind == ValueKind::kNorm      ? reduce_norms(op, comm)
                            : op.kind == OpKind::kReduceScatter          ? reduce_to_shards(op, comm)
                            : !op.writes[0].placement.is_whole()         ? reduce_shards(op, comm)
                                                                         : reduce_whole(op, comm);
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

OpOptions ModelBindings::sum_options(const Op& op) const {
  return {.op = ReduceOp::kSum,
          .name = "gradient",
          .algorithm = op.axis == options_.algorithm_axis ? std::string_view(options_.algorithm) : ""};
}

std::vector<Work> ModelBindings::reduce_encoded(const Op& op, int64_t step, Communicator& comm) {
  std::vector<Work> works;
  for (const program::Value& value : op.writes) {
    for (Work& work :
         options_.encoded->start_exchange(value.index, step, comm, groups_.encoded_sums(op.axis), sum_options(op)))
      works.push_back(std::move(work));
  }
  return works;
}

std::vector<Work> ModelBindings::reduce_whole(const Op& op, Communicator& comm) {
  std::vector<Work> works;
  const std::vector<int> groups = indices(op.reads, ValueKind::kGradient);
  for (size_t begin = 0; begin < groups.size();) {  // consecutive groups are reduced as one range
    size_t end = begin + 1;
    const auto follows = [&] {  // in memory, too: what takes turns in slots lies anywhere
      return groups[end] == groups[end - 1] + 1 && !parameters_.pools_gradient(groups[end]) &&
             !parameters_.pools_gradient(groups[end - 1]);
    };
    while (end < groups.size() && follows()) ++end;
    const at::Tensor range = parameters_.gradient_range(groups[begin], groups[end - 1], op.writes[0].codec);
    const program::ElementRange part = program::part_of(range.numel(), op);
    works.push_back(comm.all_reduce_async(range.narrow(0, part.begin, part.end - part.begin), sum_options(op)));
    begin = end;
  }
  return works;
}

// Sums gradient shards among the ranks that hold copies of them.
std::vector<Work> ModelBindings::reduce_shards(const Op& op, Communicator& comm) {
  std::vector<Work> works;
  for (const program::Value& value : op.writes) {
    works.push_back(comm.all_reduce_async(parameters_.memory(value), sum_options(op)));
  }
  return works;
}

// Sums gradients at their owner. Where the sum lies elsewhere than its term, the owner puts the term there first, or
// adds it to the sum of earlier micro-batches.
EventPtr ModelBindings::reduce_to_owner(const Op& op) {
  Communicator& comm = groups_.of(op.lane, op.axis);
  const std::vector<program::Value> moved = program::moved_values(op);
  const bool adds = op.reads.size() > moved.size();
  std::vector<Work> works;
  for (size_t i = 0; i < moved.size(); ++i) {
    const at::Tensor term = parameters_.memory(moved[i]);
    at::Tensor sum = op.writes.empty() ? term : parameters_.memory(op.writes.at(i));
    if (sum.data_ptr() != term.data_ptr()) adds ? sum.add_(term) : sum.copy_(term);
    works.push_back(comm.reduce_async(sum, op.peer, {.op = ReduceOp::kSum, .name = "gradient"}));
  }
  return std::make_shared<WorksEvent>(std::move(works), parameters_.device());
}

// Sums gradients into shards. Where a shard holds a part of the sum already, its owner adds it to the whole first.
std::vector<Work> ModelBindings::reduce_to_shards(const Op& op, Communicator& comm) {
  std::vector<Work> works;
  const bool adds = op.reads.size() > op.writes.size();
  for (size_t i = 0; i < op.writes.size(); ++i) {
    const at::Tensor whole = parameters_.memory(op.reads[i]), shard = parameters_.memory(op.writes[i]);
    if (adds) whole.narrow(0, comm.rank() * shard.numel(), shard.numel()).add_(shard);
    works.push_back(comm.reduce_scatter_async(whole, shard, {.op = ReduceOp::kSum, .name = "gradient"}));
  }
  return works;
}

std::vector<Work> ModelBindings::reduce_norms(const Op& op, Communicator& comm) {
  const std::vector<int> groups = indices(op.writes, ValueKind::kNorm);
  const auto count = static_cast<size_t>(groups.back() - groups.front() + 1);
  for (int group = groups.front(); group <= groups.back(); ++group)  // norms between them are summed, too
    HERD_CHECK(contains(op.writes, ValueKind::kNorm, group) || parameters_.group(group).frozen(),
               "a norm that is not summed");
  const auto sums = std::span(squared_norms_).subspan(static_cast<size_t>(groups.front()), count);
  std::vector<Work> works;
  if (device_)
    works.push_back(comm.all_reduce_async(device_->squared_norms.narrow(0, groups.front(), static_cast<int64_t>(count)),
                                          {.name = "norms"}));
  else
    works.push_back(comm.all_reduce_async(sums, {.name = "norms"}));
  return works;
}

// Copies bytes between device and host, no faster than the link that the run emulates.
void ModelBindings::copy_over_link(const at::Tensor& from, const at::Tensor& to) const {
  if (!from.is_cpu() || !to.is_cpu()) {
    at::Tensor target = to;
    target.copy_(from, /*non_blocking=*/true);
    return;
  }
  const auto begin = Clock::now();
  if (from.is_non_overlapping_and_dense())
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  else
    at::Tensor(to).copy_(from);
  wait_for_link(begin, static_cast<int64_t>(from.nbytes()));
}

void ModelBindings::wait_for_link(Clock::time_point begin, int64_t bytes) const {
  if (options_.link_bytes_per_us <= 0 || bytes == 0) return;
  const std::chrono::duration<double, std::micro> least(static_cast<double>(bytes) / options_.link_bytes_per_us);
  std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(least));
}

int64_t ModelBindings::direct_bytes(const Op& op) const {
  int64_t bytes = 0;
  for (const program::Value& value : op.reads) {
    if (value.kind == ValueKind::kWeight && value.tier == program::Tier::kHost)
      bytes += static_cast<int64_t>(parameters_.whole_on_host(value.index).nbytes());
  }
  return options_.table == nullptr ? bytes : options_.table->blocks[static_cast<size_t>(op.block)].bytes_read(bytes);
}

// Copies the gradient that this rank updates to the host, or what the host has updated to a file.
void ModelBindings::evict(const Op& op) {
  if (op.lane == program::Lane::kIo) {
    parameters_.write_file(op.reads);
    return;
  }
  if (op.reads.at(0).kind == ValueKind::kActivation) return evict_activation(op.reads[0]);
  const int group = op.reads.at(0).index, piece = op.writes.at(0).tensor;
  const kernels::ElementRange range = parameters_.piece(group, piece);
  copy_over_link(parameters_.own_gradient(group).narrow(0, range.begin - parameters_.part(group).begin, range.size()),
                 parameters_.memory(op.writes[0]).narrow(0, 0, range.size()));
}

// Copies weights or a decoded gradient from the host, or what the host will update from a file.
void ModelBindings::fetch(const Op& op, int64_t step) {
  if (op.lane == program::Lane::kIo) {
    parameters_.read_file(op.writes);
    return;
  }
  if (op.writes.at(0).kind == ValueKind::kActivation) return fetch_activation(op.writes[0]);
  const int group = op.writes.at(0).index;
  if (op.writes[0].kind == ValueKind::kGradient) {
    if (!options_.encoded->is_warming_up(step))
      copy_over_link(parameters_.memory(op.reads.at(0)), parameters_.memory(op.writes[0]));
    return;
  }
  const bool is_whole = op.writes[0].placement.is_whole();
  const kernels::ElementRange range = parameters_.piece(group, op.reads.at(0).tensor);
  const int64_t elements = is_whole && op.reads[0].tensor == 0 ? parameters_.group(group).elements() : range.size();
  copy_over_link(parameters_.memory(op.reads[0]).narrow(0, 0, elements),
                 parameters_.memory(op.writes[0]).narrow(0, range.begin - parameters_.part(group).begin, elements));
  // What a window fetches again is the same as before, and graphs still refer to it.
  // Nor does the shard of a delayed update touch what passes have gathered and still use.
  const bool is_beside_passes = options_.delays_updates && !parameters_.keeps_whole(group);
  if (!parameters_.stays_on_host(group) && !is_beside_passes) parameters_.group(group).mark_weights_written();
}

at::Tensor ModelBindings::waiting_on_host(const program::Value& value) const {
  at::Tensor form;
  {
    const std::lock_guard lock(mutex_);
    form = waiting_.at(value);
  }
  const at::Tensor bytes = parameters_.memory(in_tier(value, program::Tier::kHost));
  const auto needed = static_cast<int64_t>(form.nbytes());
  HERD_CHECK(bytes.defined() && needed <= bytes.numel(), "no room on the host for an activation");
  return bytes.narrow(0, 0, needed).view(form.scalar_type()).as_strided(form.sizes(), form.strides());
}

void ModelBindings::evict_activation(const program::Value& value) {
  const at::Tensor from = find_tensor(value);
  HERD_CHECK(from.defined(), "what is evicted holds no tensor");  // the executor names the op
  const auto options = from.options().device(at::kMeta);
  const at::Tensor form = from.is_non_overlapping_and_dense() ? at::empty_strided(from.sizes(), from.strides(), options)
                                                              : at::empty(from.sizes(), options);
  {
    const std::lock_guard lock(mutex_);
    waiting_[value] = form;
  }
  copy_over_link(from, waiting_on_host(value));
  if (!device_) return;
  const c10::impl::VirtualGuardImpl guard(from.device().type());
  guard.recordDataPtrOnStream(from.storage().data_ptr(), guard.getStream(from.device()));
}

void ModelBindings::fetch_activation(const program::Value& value) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  const at::Tensor from = waiting_on_host(value);
  const at::Tensor to = at::empty_strided(from.sizes(), from.strides(), from.options().device(parameters_.device()));
  copy_over_link(from, to);
  set_tensor(value, to);
}

// Copies values to another codec. bf16 has their padding, too, which is zero in either codec.
void ModelBindings::recode(const Op& op, int64_t step) {
  for (size_t i = 0; i < op.writes.size(); ++i) {
    const program::Value &from = op.reads.at(i), &to = op.writes[i];
    const bool sums_shards = options_.encoded == nullptr;
    if (from.kind == ValueKind::kResidual) continue;
    if (options_.served != nullptr && from.kind == ValueKind::kGradient)
      options_.served->check_gradient(from.index, step);
    if (from.kind == ValueKind::kWeight && op.kind == OpKind::kEncode)
      parameters_.encode_shard(to.index);
    else if (from.kind == ValueKind::kWeight)
      parameters_.decode_gathered(to.index);
    else if (sums_shards && program::keeps_residuals(from.codec) && op.kind == OpKind::kEncode)
      parameters_.sum_host_terms(to.index, to.codec);
    else if (sums_shards && program::keeps_residuals(to.codec))
      parameters_.encode_terms(to.index, to.codec);
    else if (sums_shards && program::keeps_residuals(from.codec))
      parameters_.sum_terms(to.index, from.codec, op.reads.size() > op.writes.size());
    else if (program::keeps_residuals(to.codec))
      options_.encoded->encode(to.index, step);
    else if (program::keeps_residuals(from.codec))
      options_.encoded->decode(to.index, step);
    else
      parameters_.memory(to).copy_(parameters_.memory(from));
  }
}

void ModelBindings::push(const Op& op, int64_t step) {
  const program::Value& gradient = op.reads.at(0);
  const PushMessages* const encoded =
      program::keeps_residuals(gradient.codec) ? options_.encoded->messages(gradient.index, step) : nullptr;
  if (encoded != nullptr)
    options_.served->push_encoded(gradient.index, step, *encoded);
  else if (gradient.codec == program::Codec::kBf16)
    options_.served->push_bf16(gradient.index, step);
  else
    options_.served->push(gradient.index, op.part, step);
}

EventPtr ModelBindings::send(const Op& op) {
  const program::Value& value = op.reads[0];
  Communicator& comm = groups_.messages(op.axis);
  const at::Tensor tensor = find_tensor(value);
  HERD_CHECK(tensor.defined(), "what is sent holds no tensor");  // the executor names the op
  return std::make_shared<WorksEvent>(
      std::vector<Work>{comm.send_async(tensor.contiguous(), op.peer, 0, {.name = program::kind_name(value.kind)})},
      parameters_.device());
}

EventPtr ModelBindings::receive(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  const program::Value& value = op.writes[0];
  const at::Tensor tensor = empty(value);
  set_tensor(value, tensor);
  return std::make_shared<WorksEvent>(std::vector<Work>{groups_.messages(op.axis).receive_async(
                                          tensor, op.peer, 0, {.name = program::kind_name(value.kind)})},
                                      parameters_.device());
}

// Adds what another rank's blocks contribute to a gradient of an activation.
void ModelBindings::add(const Op& op) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  set_tensor(op.writes.at(0), sum(find_tensor(op.reads.at(0)), find_tensor(op.reads.at(1))));
}

// Computes the squared norm of each gradient, or of all of them together.
void ModelBindings::norm(const Op& op) {
  if (device_) return norm_on_device(op);
  double sum = 0;
  for (const int group : indices(op.reads, ValueKind::kGradient)) {
    const double squares = optim::sum_of_squares(parameters_.own_gradient(group));
    sum += squares;
    squared_norms_[group] = squares;
  }
  if (op.writes.size() == 1) squared_norms_[op.writes[0].index] = sum;
}

void ModelBindings::norm_on_device(const Op& op) {
  const at::Tensor& norms = device_->squared_norms;
  at::Tensor sum;
  for (const int group : indices(op.reads, ValueKind::kGradient)) {
    const at::Tensor squares = optim::sum_of_squares_on_device(parameters_.own_gradient(group));
    if (op.writes.size() > 1) norms.narrow(0, group, 1).copy_(squares);
    sum = sum.defined() ? sum.add_(squares) : squares;
  }
  if (op.writes.size() != 1) return;
  const at::Tensor norm = norms.narrow(0, op.writes[0].index, 1);
  if (sum.defined())
    norm.copy_(sum);
  else
    norm.zero_();
}

void ModelBindings::clip(const Op& op) {
  if (options_.loss_scale) skipped_ = options_.loss_scale->skipped();
  if (device_) return clip_on_device(op);
  double sum = 0;
  for (const int group : indices(op.reads, ValueKind::kNorm)) sum += squared_norms_[group];
  const double scale = options_.loss_scale ? options_.loss_scale->scale() : 1;
  const bool skips = options_.loss_scale && options_.loss_scale->can_shrink() && !std::isfinite(sum);
  const optim::Clip clip = optim::clip_by_norm(sum / (scale * scale), options_.clip);
  factor_ = skips ? -1 : static_cast<float>(clip.factor / scale);
  check_norm(skips ? std::sqrt(sum) : clip.norm);
}

// A norm that is not finite lets the updates pass: the host learns of it when it reads the norm.
void ModelBindings::clip_on_device(const Op& op) {
  const std::vector<int> groups = indices(op.reads, ValueKind::kNorm);
  const at::Tensor sums = device_->squared_norms.narrow(0, groups.front(), groups.back() - groups.front() + 1);
  const auto& scale = options_.loss_scale;
  optim::clip_on_device(sums, options_.clip, scale ? scale->scale() : 1,
                        options_.stop_on_nonfinite || (scale && scale->can_shrink()), device_->totals.narrow(0, 2, 1),
                        device_->factor);
  device_->has_norm = true;
  device_->copy_to_host();
}

// Notes the norm of a step, and what follows from one that is not finite.
void ModelBindings::check_norm(double norm) {
  output_.gradient_norm = norm;
  const bool is_finite = std::isfinite(norm);
  if (options_.loss_scale) {
    const bool skipped = !is_finite && options_.loss_scale->can_shrink();
    options_.loss_scale->after_step(!is_finite);
    if (skipped) return;
  }
  if (is_finite || !options_.stop_on_nonfinite) return;
  output_.nonfinite = true;
  throw Error(Code::kBadConfig, "the norm of the gradient is " + std::to_string(norm));
}

void ModelBindings::set_waiting_gradient(float factor) {
  has_waiting_gradient_ = true;
  factor_ = factor;
  if (device_) device_->host_factor.fill_(factor);
}

float ModelBindings::waiting_factor() const {
  return device_ ? device_->host_factor.const_data_ptr<float>()[0] : factor_;
}

void ModelBindings::step(const Op& op, int64_t step) {
  if (options_.delays_updates) {
    if (!first_update_) first_update_ = step;
    if (step == *first_update_ && !has_waiting_gradient_) {  // the weights are fetched all the same
      for (const program::Value& value : op.writes) {
        if (value.kind != ValueKind::kWeight) continue;
        const int group = value.index;
        const kernels::ElementRange range = parameters_.piece(group, value.tensor);
        at::Tensor(parameters_.update_weights(group, value.tensor))
            .copy_(parameters_.own_weights(group).narrow(0, range.begin - parameters_.part(group).begin, range.size()));
      }
      return;
    }
    --step;  // the update is that of the step before
  }
  const float* const on_host = device_ ? device_->host_factor.const_data_ptr<float>() : &factor_;
  for (const program::Value& value : op.writes) {
    if (value.kind != ValueKind::kWeight) continue;
    const int group = value.index, piece = value.tensor;
    if (!parameters_.update_weights(group, piece).is_cpu())
      update_(group, piece, device_->factor.const_data_ptr<float>(), step - skipped_);
    else if (*on_host >= 0)
      update_(group, piece, on_host, step - skipped_);
    else if (const at::Tensor master = parameters_.update_master(group, piece); master.defined())
      at::Tensor(parameters_.update_weights(group, piece)).copy_(master);  // what follows copies them, skipped or not
  }
}

void ModelBindings::release(const Op& op) {
  for (const program::Value& value : op.writes) {
    const bool is_gathered = program::is_plain_whole(value, ValueKind::kWeight) && value.tier == program::Tier::kDevice;
    if (is_gathered) parameters_.detach(value.index);
    if (value.kind == ValueKind::kRouting) {
      const std::lock_guard lock(mutex_);
      // A shard is the same entry. No lane reads it any more: what each exchange gives is read on the compute lane,
      // which runs releases before its next pass.
      routings_.erase(value);
    }
    if (value.kind == ValueKind::kGraph) graphs_.erase(program::graph(value.index, value.micro_batch));
    if (program::is_activation_or_gradient(value) || value.kind == ValueKind::kTarget) set_tensor(value, {});
  }
}

}  // namespace herd::runtime
