#include "herd/ddp/gradient_reducer.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/encoded_sum.h"
#include "herd/ddp/gradient_buckets.h"

namespace herd::ddp {
namespace {

using AutogradNode = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

at::Tensor allocate(Communicator& comm, const GradientBucket& layout, const at::Device& device) {
  const auto options = at::TensorOptions().dtype(scalar_type_of(layout.dtype)).device(device);
  if (!device.is_cpu()) return at::zeros({layout.elements}, options);
  SymmetricMemory memory = comm.allocate_symmetric(layout.bytes(), {.name = "gradient bucket"});
  return at::from_blob(
             memory.data(), {layout.elements}, [keep = memory.keep_alive()](void*) {}, options)
      .zero_();
}

// Returns a tensor like `parameter` on the bucket's bytes. Autograd must not take it for a view: Optimizer::zero_grad
// detaches gradients in place, which views refuse.
at::Tensor place_in(const at::Tensor& flat, int64_t offset, const at::Tensor& parameter) {
  const at::Tensor like = parameter.is_non_overlapping_and_dense() ? parameter : parameter.contiguous();
  auto* bytes = static_cast<char*>(flat.data_ptr()) + offset * flat.element_size();
  return at::from_blob(
      bytes, like.sizes(), like.strides(), [keep = flat](void*) {}, flat.options());
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t k = 0; k < names.size() && k < 8; ++k) text += (k ? ", " : "") + names[k];
  return names.size() > 8 ? text + " and " + std::to_string(names.size() - 8) + " more" : text;
}

void check_codec(const std::vector<NamedParameter>& parameters, const ReducerOptions& options) {
  const kernels::CodecSettings& codec = *options.codec;
  const std::string name(kernels::codec_row(codec.kind).name);
  if (!options.algorithm.empty()) {
    throw Error(Code::kBadConfig, "a sum in the form of " + name + " has its own algorithm, not \"" +
                                      options.algorithm + "\"\n  fix: leave out the codec or the algorithm");
  }
  if (codec.block < 2 || codec.block % 2 != 0 || !(codec.ratio > 0 && codec.ratio <= 1)) {
    throw Error(Code::kBadConfig,
                "a codec has an even block of 2 elements or more and a ratio in (0, 1], not block = " +
                    std::to_string(codec.block) + " and ratio = " + std::to_string(codec.ratio));
  }
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.scalar_type() == at::kFloat && parameter.tensor.is_cpu()) continue;
    throw Error(Code::kBadConfig, "the gradient of " + parameter.name + " is " +
                                      std::string(dtype_name(dtype_of(parameter.tensor.scalar_type()))) + " on " +
                                      parameter.tensor.device().str() + ", and " + name +
                                      " encodes fp32 on the CPU\n  fix: leave out the codec");
  }
}

}  // namespace

// Holds the gradients in their buckets, and the reduction that runs.
struct GradientReducer::State {
  struct Gradient {
    std::string name;
    at::Tensor parameter;
    bool sparse = false;
    at::Tensor view;  // bytes of the bucket, in the parameter's sizes and strides; undefined of a sparse one
    size_t bucket = 0;
    at::Tensor previous = {};  // the gradient of an unused parameter, until it is known whether another rank used it
    bool ready = false;        // in the bucket, in this backward
    bool used = false;         // a backward since the last reduction gave it a gradient
    AutogradNode accumulator;  // autograd holds it weakly
    uintptr_t hook = 0;
  };

  // Sums a bucket in the form of a codec.
  struct Encoded {
    Encoded(const GradientBucket& layout, const kernels::CodecSettings& codec, const Communicator& comm)
        : parts{codec, layout.elements, comm.size()},
          residual(static_cast<size_t>(parts.residual_elements())),
          message(parts.is_sparse() ? 0 : static_cast<size_t>(parts.message_bytes())),
          incoming(static_cast<size_t>(parts.incoming_bytes())),
          flags(static_cast<size_t>(layout.num_flags())),
          sum(parts, {{layout.first_flag(), layout.elements}}, comm.rank(), {residual, message, incoming, flags}) {}
    kernels::EncodedParts parts;
    std::vector<float> residual;
    std::vector<uint8_t> message, incoming;
    std::vector<float> flags;
    comm::EncodedSum sum;
  };

  struct Bucket {
    GradientBucket layout;
    std::string name;
    at::Tensor flat;
    size_t num_ready = 0;
    bool missing = false;  // this rank lacks a gradient that it must have
    Work work;
    std::unique_ptr<Encoded> encoded;       // null without a codec
    std::shared_future<void> encoded_work;  // sums it, after the bucket before it

    // The flags are the last elements of the bucket. read_flags() copies them to the host.
    at::Tensor flags() const { return flat.narrow(0, layout.first_flag(), layout.num_flags()); }
    at::Tensor read_flags() const { return flags().to(at::TensorOptions().device(at::kCPU).dtype(at::kDouble)); }
  };

  Communicator comm;
  ReducerOptions options;
  std::optional<Communicator> encoded_group;  // its operations are issued by a thread of their own
  std::vector<Gradient> gradients;
  std::vector<Bucket> buckets;
  mutable std::mutex mutex;
  bool reducing = true;
  bool running = false;  // between the first gradient of a backward and its end
  int graph_task = -1;
  size_t next_bucket = 0;
  std::optional<double> share;          // weight / sum of weights of the next reduced gradient
  uint64_t forwards = 0;                // forwards so far whose gradients are to be reduced
  uint64_t reduced_forwards = 0;        // their number at the last reduction
  uint64_t forwards_per_reduction = 1;  // their number between the last two reductions

  void fill(Gradient& gradient) const;
  void check_is_sparse(const Gradient& gradient) const;
  void gradient_is_complete(size_t index, const std::shared_ptr<State>& self);
  void begin();
  void mark_ready(Gradient& gradient);
  void set_flags(Bucket& bucket) const;
  void start_complete_buckets();
  void start_encoded(Bucket& bucket, const std::string& name);
  void wait_for_buckets();
  void sum_sparse_gradients();
  at::Tensor sum_of_rows(const Gradient& gradient);
  void set_aside(Gradient& gradient) const;
  void finish(bool has_batch);
  void throw_missing(const std::vector<std::string>& missing_here) const;
  void take_back_unused();
  void check_ready() const;
};

// Moves the gradient into the bucket, scaled by this rank's share of the batch.
void GradientReducer::State::fill(Gradient& gradient) const {
  at::NoGradGuard no_grad;
  if (gradient.sparse) return check_is_sparse(gradient);
  const at::Tensor grad = gradient.parameter.grad();
  if (!grad.defined() || share == 0.0) {
    gradient.view.zero_();
  } else if (grad.is_sparse()) {
    throw Error(Code::kBadConfig, "parameter " + gradient.name +
                                      " has a sparse gradient, and is no weight of a torch::nn::Embedding or "
                                      "EmbeddingBag with sparse = true\n  fix: build it with sparse = false");
  } else if (grad.data_ptr() == gradient.view.data_ptr()) {
    if (share) gradient.view.mul_(*share);
  } else if (share) {
    at::mul_out(gradient.view, grad, at::scalar_tensor(*share, grad.options()));
  } else {
    gradient.view.copy_(grad);
  }
  gradient.parameter.mutable_grad() = gradient.view;
}

void GradientReducer::State::check_is_sparse(const Gradient& gradient) const {
  const at::Tensor grad = gradient.parameter.grad();
  if (!grad.defined() || (grad.is_sparse() && grad.sparse_dim() == 1)) return;
  throw Error(Code::kBadConfig, "parameter " + gradient.name + " belongs to an embedding with sparse = true, but its " +
                                    "gradient is " + (grad.is_sparse() ? "sparse in other dimensions" : "dense") +
                                    ", as where another module uses it, too\n  fix: build it with sparse = false");
}

void GradientReducer::State::begin() {
  running = true;
  next_bucket = 0;
  for (Gradient& gradient : gradients) gradient.ready = false;
  for (Bucket& bucket : buckets) {
    bucket.num_ready = 0;
    bucket.missing = false;
    bucket.work = {};
  }
}

void GradientReducer::State::gradient_is_complete(size_t index, const std::shared_ptr<State>& self) {
  const std::lock_guard lock(mutex);
  gradients[index].used = true;
  if (!reducing) return;
  const int task = torch::autograd::get_current_graph_task_id();
  if (running && task != graph_task) check_ready();
  if (!running) {
    begin();
    graph_task = task;
    torch::autograd::Engine::get_default_engine().queue_callback([self] { self->finish(true); });
  }
  Gradient& gradient = gradients[index];
  HERD_CHECK(!gradient.ready, "the gradient of " + gradient.name + " came twice in one backward");
  fill(gradient);
  mark_ready(gradient);
  start_complete_buckets();
}

void GradientReducer::State::mark_ready(Gradient& gradient) {
  gradient.ready = true;
  ++buckets[gradient.bucket].num_ready;
}

// Writes this rank's flags. Their sum or average over ranks is 0 exactly where every rank's flag is 0.
void GradientReducer::State::set_flags(Bucket& bucket) const {
  std::vector<double> values;
  for (int index : bucket.layout.parameters) values.push_back(gradients[static_cast<size_t>(index)].used ? 1 : 0);
  values.push_back(bucket.missing ? 1 : 0);
  bucket.flags().copy_(at::tensor(values, at::kDouble));
}

// Starts buckets in their order, which is the same on every rank, whatever the order of gradients.
void GradientReducer::State::start_complete_buckets() {
  for (; next_bucket < buckets.size(); ++next_bucket) {
    Bucket& bucket = buckets[next_bucket];
    if (bucket.num_ready < bucket.layout.parameters.size()) return;
    set_flags(bucket);
    const std::string name = bucket.name + " of forward " + std::to_string(forwards);
    if (bucket.encoded != nullptr) {
      start_encoded(bucket, name);
      continue;
    }
    bucket.work = comm.all_reduce_async(
        bucket.flat, {.op = share ? ReduceOp::kSum : ReduceOp::kAverage, .name = name, .algorithm = options.algorithm});
  }
}

void GradientReducer::State::start_encoded(Bucket& bucket, const std::string& name) {
  const std::shared_future<void> before =
      next_bucket > 0 ? buckets[next_bucket - 1].encoded_work : std::shared_future<void>();
  const double factor = share ? 1 : 1.0 / comm.size();
  bucket.encoded_work =
      std::async(std::launch::async, [this, &bucket, before, name, factor] {
        if (before.valid()) before.get();
        const std::span<float> values(bucket.flat.data_ptr<float>(), static_cast<size_t>(bucket.layout.elements));
        bucket.encoded->sum.encode(values);
        bucket.encoded->sum.exchange(*encoded_group, {.name = name});
        bucket.encoded->sum.decode(values);
        for (float& value : values) value = static_cast<float>(value * factor);
      }).share();
}

// All buckets are waited for before the first failure is thrown, since their threads use them.
void GradientReducer::State::wait_for_buckets() {
  for (Bucket& bucket : buckets)
    if (bucket.encoded_work.valid()) bucket.encoded_work.wait();
  for (Bucket& bucket : buckets) {
    if (bucket.encoded_work.valid()) std::exchange(bucket.encoded_work, {}).get();
    bucket.work.wait();
  }
}

// Sums the sparse gradients that any rank has, in the order of parameters.
void GradientReducer::State::sum_sparse_gradients() {
  at::NoGradGuard no_grad;
  for (Gradient& gradient : gradients) {
    if (!gradient.sparse) continue;
    const GradientBucket& layout = buckets[gradient.bucket].layout;
    const auto index = static_cast<int>(&gradient - gradients.data());
    const auto place = std::ranges::find(layout.parameters, index) - layout.parameters.begin();
    const bool is_used = buckets[gradient.bucket].flags()[place].item<double>() != 0;
    if (is_used) gradient.parameter.mutable_grad() = sum_of_rows(gradient);
  }
}

// Returns the sum over ranks of their rows, scaled as a bucket's. A rank without a gradient has no rows.
at::Tensor GradientReducer::State::sum_of_rows(const Gradient& gradient) {
  const at::Tensor& parameter = gradient.parameter;
  std::vector<int64_t> sizes = parameter.sizes().vec();
  sizes[0] = 0;
  at::Tensor rows = at::empty({0}, parameter.options().dtype(at::kLong)),
             values = at::empty(sizes, parameter.options());
  if (parameter.grad().defined() && share != 0.0) {
    const at::Tensor grad = parameter.grad().coalesce();
    rows = grad.indices().select(0, 0).contiguous();
    values = (grad.values() * (share ? *share : 1.0 / comm.size())).contiguous();
  }
  const std::string name = "grad." + gradient.name + " of forward " + std::to_string(forwards);
  std::vector<int64_t> counts(static_cast<size_t>(comm.size())), mine = {rows.numel()};
  comm.all_gather(mine, counts, {.name = name + ", counts"});
  const int64_t all = std::reduce(counts.begin(), counts.end());
  sizes[0] = all;
  at::Tensor all_rows = at::empty({all}, rows.options()), all_values = at::empty(sizes, values.options());
  comm.all_gather(rows, all_rows, {.name = name + ", rows", .counts = counts});
  const int64_t row_elements = parameter.numel() / std::max<int64_t>(parameter.size(0), 1);
  for (int64_t& count : counts) count *= row_elements;
  comm.all_gather(values, all_values, {.name = name, .counts = counts});
  return at::sparse_coo_tensor(all_rows.unsqueeze(0), all_values, parameter.sizes()).coalesce();
}

// Keeps the gradient from before this reduction, as a copy if it lies in the bucket.
void GradientReducer::State::set_aside(Gradient& gradient) const {
  const at::Tensor grad = gradient.parameter.grad();
  const bool in_bucket = grad.defined() && !gradient.sparse && grad.data_ptr() == gradient.view.data_ptr();
  gradient.previous = in_bucket ? grad.clone() : grad;
}

// Ends a backward. Missing gradients are sent as zeros with a flag, so that no rank waits and all ranks learn of them.
void GradientReducer::State::finish(bool has_batch) {
  const std::lock_guard lock(mutex);
  const bool must_have_all = has_batch && options.unused == UnusedParameters::kError;
  std::vector<std::string> missing;
  for (Gradient& gradient : gradients) {
    if (gradient.ready) continue;
    if (!gradient.used) {
      set_aside(gradient);
      if (!has_batch) gradient.parameter.mutable_grad().reset();
      if (must_have_all) missing.push_back(gradient.name);
      buckets[gradient.bucket].missing |= must_have_all;
    }
    fill(gradient);
    mark_ready(gradient);
  }
  start_complete_buckets();
  wait_for_buckets();
  sum_sparse_gradients();
  running = false;
  share.reset();
  forwards_per_reduction = forwards - reduced_forwards;
  reduced_forwards = forwards;
  take_back_unused();
  if (must_have_all) throw_missing(missing);
}

void GradientReducer::State::throw_missing(const std::vector<std::string>& missing_here) const {
  if (!missing_here.empty()) {
    throw Error(Code::kBadConfig,
                std::to_string(missing_here.size()) + " of " + std::to_string(gradients.size()) +
                    " parameters got no gradient in this backward on rank " + std::to_string(comm.rank()) + ": " +
                    joined(missing_here) +
                    "\n  fix: use them in forward, freeze them, or set unused = UnusedParameters::kZero");
  }
  std::vector<std::string> elsewhere;
  for (const Bucket& bucket : buckets) {
    if (bucket.flat.select(0, bucket.layout.elements - 1).item<double>() == 0) continue;
    for (int parameter : bucket.layout.parameters) elsewhere.push_back(gradients[static_cast<size_t>(parameter)].name);
  }
  if (!elsewhere.empty()) {
    throw Error(
        Code::kBadConfig,
        "another rank got no gradient for some of these parameters (its own error names them): " + joined(elsewhere));
  }
}

// Gives back the gradients of parameters that no rank used, as a rule undefined ones.
void GradientReducer::State::take_back_unused() {
  at::NoGradGuard no_grad;
  for (const Bucket& bucket : buckets) {
    const at::Tensor flags = bucket.read_flags();
    for (size_t k = 0; k < bucket.layout.parameters.size(); ++k) {
      Gradient& gradient = gradients[static_cast<size_t>(bucket.layout.parameters[k])];
      if (flags.const_data_ptr<double>()[k] == 0) gradient.parameter.mutable_grad() = gradient.previous;
      gradient.previous.reset();
      gradient.used = false;
    }
  }
}

void GradientReducer::State::check_ready() const {
  if (!running) return;
  size_t ready = 0;
  for (const Gradient& gradient : gradients) ready += gradient.ready;
  throw Error(Code::kAborted,
              "the last backward stopped half-way on rank " + std::to_string(comm.rank()) + ", after " +
                  std::to_string(ready) + " of " + std::to_string(gradients.size()) +
                  " gradients: buckets are in flight that other ranks may have counted"
                  "\n  fix: let the first exception of a backward end the job, and restart from a checkpoint");
}

GradientReducer::GradientReducer(std::vector<NamedParameter> parameters, Communicator& comm, ReducerOptions options)
    : state_(std::make_shared<State>(comm.share(), std::move(options))) {
  std::vector<GradientShape> shapes;
  for (const NamedParameter& parameter : parameters) {
    const DType dtype = dtype_of(parameter.tensor.scalar_type());
    if (!is_floating(dtype) || parameter.tensor.is_sparse()) {
      throw Error(Code::kBadConfig,
                  "parameter " + parameter.name + " can't be averaged: it must be dense and floating, but is " +
                      (parameter.tensor.is_sparse() ? "sparse " : "") + std::string(dtype_name(dtype)) +
                      "\n  fix: register it as a buffer, or freeze it (requires_grad = false)");
    }
    shapes.push_back({parameter.sparse ? 0 : parameter.tensor.numel(), dtype});
  }
  if (state_->options.codec) check_codec(parameters, state_->options);
  if (state_->options.codec && comm.size() > 1) state_->encoded_group = comm.split(0, comm.rank(), "encoded gradients");
  auto layouts = plan_gradient_buckets(shapes, state_->options.first_bucket_bytes, state_->options.bucket_bytes);
  state_->gradients.resize(parameters.size());
  for (GradientBucket& layout : layouts) {
    const size_t index = state_->buckets.size();
    const auto first = static_cast<size_t>(layout.parameters[0]);
    State::Bucket bucket;
    bucket.flat = allocate(comm, layout, parameters[first].tensor.device());
    for (size_t k = 0; k < layout.parameters.size(); ++k) {
      const auto parameter_index = static_cast<size_t>(layout.parameters[k]);
      const at::Tensor& tensor = parameters[parameter_index].tensor;
      State::Gradient& gradient = state_->gradients[parameter_index];
      gradient.name = parameters[parameter_index].name;
      gradient.parameter = tensor;
      gradient.sparse = parameters[parameter_index].sparse;
      if (!gradient.sparse) gradient.view = place_in(bucket.flat, layout.offsets[k], tensor);
      gradient.bucket = index;
    }
    bucket.name = "grad.bucket" + std::to_string(index);
    if (state_->encoded_group) bucket.encoded = std::make_unique<State::Encoded>(layout, *state_->options.codec, comm);
    bucket.layout = std::move(layout);
    state_->buckets.push_back(std::move(bucket));
  }
  for (size_t index = 0; index < state_->gradients.size(); ++index) {
    State::Gradient& gradient = state_->gradients[index];
    gradient.accumulator = torch::autograd::impl::grad_accumulator(gradient.parameter);
    gradient.hook = gradient.accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [state = std::weak_ptr<State>(state_), index](const torch::autograd::variable_list& outputs,
                                                      const torch::autograd::variable_list&) {
          if (const auto self = state.lock()) self->gradient_is_complete(index, self);
          return outputs;
        }));
  }
}

GradientReducer::~GradientReducer() {
  for (State::Gradient& gradient : state_->gradients) gradient.accumulator->del_post_hook(gradient.hook);
}

void GradientReducer::check_ready() const {
  const std::lock_guard lock(state_->mutex);
  state_->check_ready();
}

void GradientReducer::count_forward() { ++state_->forwards; }

void GradientReducer::set_reducing(bool on) { state_->reducing = on; }
bool GradientReducer::reducing() const { return state_->reducing; }

void GradientReducer::set_weight(double weight) {
  check_ready();
  // An invalid weight is sent too, so that no rank waits for the one that refuses it.
  const bool is_valid = weight >= 0 && std::isfinite(weight);
  std::vector<double> sum = {is_valid ? weight : 0, is_valid ? 0.0 : 1.0};
  state_->comm.all_reduce(sum, {.name = "grad.weight"});
  const std::string fix = "\n  fix: give the samples of the batch, and 0 on a rank that has none";
  if (!is_valid) {
    throw Error(Code::kBadConfig, "weight of a batch must be >= 0 and finite, not " + std::to_string(weight) +
                                      " on rank " + std::to_string(state_->comm.rank()) + fix);
  }
  if (sum[1] > 0) {
    throw Error(Code::kBadConfig, "the weight of a batch is not >= 0 and finite on " +
                                      std::to_string(static_cast<int>(sum[1])) + " of " +
                                      std::to_string(state_->comm.size()) + " ranks (their own errors name it)" + fix);
  }
  if (sum[0] == 0) {
    throw Error(Code::kBadConfig, "the weights of all " + std::to_string(state_->comm.size()) +
                                      " ranks are 0: no rank has a batch left\n  fix: end the epoch one step earlier");
  }
  state_->share = weight / sum[0];
}

void GradientReducer::join_without_batch() {
  check_ready();
  {
    const std::lock_guard lock(state_->mutex);
    state_->begin();
    if (state_->forwards == state_->reduced_forwards) state_->forwards += state_->forwards_per_reduction;
  }
  state_->finish(false);
}

int GradientReducer::num_buckets() const { return static_cast<int>(state_->buckets.size()); }

}  // namespace herd::ddp
