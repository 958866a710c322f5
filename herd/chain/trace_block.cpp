#include "herd/chain/trace_block.h"

#include <ATen/ops/ones_like.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/nn/run_block.h"

namespace herd {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Counts the FLOP of matrix products, convolutions and attention that this thread runs while it lives. Source of the
// counts: 2 for each multiply and add; the backward of flash attention takes 5 products where its forward takes 2.
class FlopCounter {
 public:
  FlopCounter() {
    current_ = this;
    at::RecordFunctionCallback callback(&FlopCounter::count);
    handle_ = at::addThreadLocalCallback(callback.needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~FlopCounter() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  void add_to(spec::PassCost& cost) const {
    cost.matmul_flops = matmul_;
    cost.attention_flops = attention_;
  }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    if (current_ != nullptr) current_->add(function.name(), function.inputs());
    return nullptr;
  }

  void add(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
    const auto tensor = [&](size_t i) { return inputs.at(i).toTensor(); };
    const auto elements = [](const at::Tensor& x) { return static_cast<double>(x.numel()); };
    if (name == "aten::mm" || name == "aten::bmm") {
      matmul_ += 2 * elements(tensor(0)) * static_cast<double>(tensor(1).size(-1));
    } else if (name == "aten::addmm" || name == "aten::baddbmm") {
      matmul_ += 2 * elements(tensor(1)) * static_cast<double>(tensor(2).size(-1));
    } else if (name == "aten::convolution_backward") {
      const at::Tensor gradient = tensor(0), weight = tensor(2);
      const auto wanted = inputs.at(inputs.size() - 1).toBoolList();
      matmul_ += 2 * elements(gradient) * elements(weight) / static_cast<double>(weight.size(0)) *
                 (wanted.get(0) + wanted.get(1));
    } else if (name == "aten::convolution") {
      // Each output is a product with one filter. A window lies at every stride of the padded input.
      const at::Tensor input = tensor(0), weight = tensor(1);
      const auto stride = inputs.at(3).toIntVector(), padding = inputs.at(4).toIntVector(),
                 dilation = inputs.at(5).toIntVector();
      double outputs = static_cast<double>(input.size(0) * weight.size(0));
      for (int64_t d = 2; d < input.dim(); ++d) {
        const size_t at = std::min(stride.size() - 1, static_cast<size_t>(d) - 2);
        outputs *= static_cast<double>(
            (input.size(d) + 2 * padding[at] - dilation[at] * (weight.size(d) - 1) - 1) / stride[at] + 1);
      }
      matmul_ += 2 * outputs * elements(weight) / static_cast<double>(weight.size(0));
    } else if (name == "aten::_scaled_dot_product_flash_attention_for_cpu") {
      attention_ += 4 * elements(tensor(0)) * static_cast<double>(tensor(1).size(-2));
    } else if (name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward") {
      attention_ += 10 * elements(tensor(1)) * static_cast<double>(tensor(2).size(-2));
    }
  }

  static thread_local FlopCounter* current_;
  at::CallbackHandle handle_ = 0;
  double matmul_ = 0, attention_ = 0;
};
thread_local FlopCounter* FlopCounter::current_ = nullptr;

// Measures the most bytes that are live beyond those at its beginning.
class PeakOfBytes {
 public:
  PeakOfBytes() : before_(DeviceMemory::live_bytes()) { DeviceMemory::reset_peak(); }
  int64_t bytes() const { return DeviceMemory::peak_bytes() - before_; }
  int64_t live() const { return DeviceMemory::live_bytes() - before_; }

 private:
  int64_t before_;
};

int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * static_cast<int64_t>(tensor.element_size()); }

WeakStorage weak(const at::Tensor& tensor) { return WeakStorage(tensor.storage().getWeakStorageImpl()); }

// Counts what refers to the memory of a block's weights: more while a graph is alive whose backward reads them.
size_t references_to_weights(const nn::Block& block) {
  size_t references = 0;
  for (const auto& group : block.groups()) {
    for (const nn::Parameter& parameter : group->parameters()) references += parameter.value().storage().use_count();
  }
  return references;
}

// Gives a block other weights while it lives, past autograd, which would refuse weights that change.
class OtherWeights {
 public:
  OtherWeights(const nn::Block& block, bool nan) : groups_(block.groups()) {
    for (const auto& group : groups_) {
      at::Tensor weights = group->weights().variable_data();
      const auto* memory = static_cast<const std::byte*>(weights.const_data_ptr());
      kept_.emplace_back(memory, memory + weights.nbytes());
      if (nan)
        weights.fill_(std::numeric_limits<double>::quiet_NaN());
      else
        weights.mul_(-3).sub_(1);
    }
  }
  ~OtherWeights() {
    for (size_t g = 0; g < kept_.size(); ++g)
      std::memcpy(groups_[g]->weights().mutable_data_ptr(), kept_[g].data(), kept_[g].size());
  }
  OtherWeights(const OtherWeights&) = delete;
  OtherWeights& operator=(const OtherWeights&) = delete;

 private:
  const std::vector<std::shared_ptr<nn::ParameterGroup>> groups_;
  std::vector<std::vector<std::byte>> kept_;
};

// Returns the bytes of what a block's backward has made: gradients of its inputs, and of its groups.
std::vector<std::byte> made_by_backward(const nn::Block& block, const nn::Tuple& dx) {
  nn::Tuple made = dx;
  for (const auto& group : block.groups()) {
    if (!group->frozen()) made.push_back(group->gradient());
  }
  std::vector<std::byte> bytes;
  for (const at::Tensor& tensor : made) {
    if (!tensor.defined()) continue;
    const at::Tensor whole = tensor.contiguous();
    const auto* memory = static_cast<const std::byte*>(whole.const_data_ptr());
    bytes.insert(bytes.end(), memory, memory + whole.nbytes());
  }
  return bytes;
}

bool has_trained(const nn::Block& block) {
  return std::ranges::any_of(block.groups(), [](const auto& group) { return !group->frozen(); });
}

}  // namespace

spec::TensorShape shape_of(const at::Tensor& tensor, const std::string& name) {
  spec::TensorShape shape{.name = name, .bytes = bytes_of(tensor), .dtype = dtype_of(tensor.scalar_type())};
  for (const int64_t size : tensor.sizes()) shape.extents.push_back({size});
  return shape;
}

BlockTracer::BlockTracer(std::vector<std::vector<spec::TensorId>> inputs, nn::Tuple batch, nn::Context context)
    : inputs_(std::move(inputs)), context_(std::move(context)) {
  for (size_t i = 0; i < batch.size(); ++i) tensors_[{0, static_cast<int>(i)}] = std::move(batch[i]);
  for (size_t b = 0; b < inputs_.size(); ++b) {
    for (const spec::TensorId input : inputs_[b]) last_reader_[input] = static_cast<int>(b);
  }
}

bool BlockTracer::is_differentiable(spec::TensorId tensor) const {
  const auto at = differentiable_.find(tensor);
  return at != differentiable_.end() && at->second;
}

nn::Tuple BlockTracer::own_inputs(int b) const {
  nn::Tuple inputs;
  for (const spec::TensorId input : inputs_[static_cast<size_t>(b)]) inputs.push_back(tensors_.at(input).clone());
  return inputs;
}

void BlockTracer::forget_what_was_read(int b) {
  for (const auto& [tensor, last] : last_reader_) {
    if (last == b) tensors_.erase(tensor);
  }
}

void BlockTracer::trace(nn::Block& block, int b, spec::BlockShape& shape) {
  nn::Tuple inputs = own_inputs(b);
  trace_without_graph(block, b, inputs, shape);
  trace_with_graph(block, b, std::move(inputs), shape);
  forget_what_was_read(b);
}

void BlockTracer::trace_with_graph(nn::Block& block, int b, nn::Tuple inputs, spec::BlockShape& shape) {
  const std::vector<spec::TensorId>& ids = inputs_[static_cast<size_t>(b)];
  std::map<spec::TensorId, WeakStorage> storages;
  int64_t in_bytes = 0, read_bytes = 0, dy_bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    storages.emplace(ids[i], weak(inputs[i]));
    in_bytes += bytes_of(inputs[i]);
  }
  const size_t references = references_to_weights(block);
  const PeakOfBytes begin;
  nn::Graph graph;
  {
    const FlopCounter flops;
    graph = nn::run_forward(block, inputs, context_);
    flops.add_to(shape.forward);
  }
  const int64_t forward_peak = begin.bytes();
  bool any_gradient = false;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    shape.outputs[i].differentiable = graph.outputs[i].requires_grad();
    differentiable_[spec::TensorId(b + 1, static_cast<int>(i))] = shape.outputs[i].differentiable;
    any_gradient = any_gradient || graph.outputs[i].requires_grad();
  }
  nn::Tuple outputs = nn::take_outputs(graph), dy;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const spec::TensorId id(b + 1, static_cast<int>(i));
    const bool takes = is_read(id) && shape.outputs[i].differentiable;
    dy.push_back(takes ? at::ones_like(outputs[i]) : at::Tensor());
    if (takes) dy_bytes += bytes_of(outputs[i]);
    if (!is_read(id)) continue;
    storages.emplace(id, weak(outputs[i]));
    read_bytes += bytes_of(outputs[i]);
  }
  outputs.clear();
  inputs.clear();
  shape.backward_reads_weights = references_to_weights(block) > references;
  shape.graph_bytes = std::max<int64_t>(0, begin.live() - dy_bytes + in_bytes);
  int64_t own_bytes = shape.graph_bytes;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> held;  // inputs live on in other graphs while this one runs back
  for (auto& [id, storage] : storages) {
    const auto memory = storage.lock();
    if (!memory) continue;
    shape.kept.push_back(id);
    own_bytes -= static_cast<int64_t>(memory->nbytes());
    if (id.producer != b + 1) held.push_back(memory);
  }
  shape.forward.scratch_bytes = std::max<int64_t>(0, forward_peak - read_bytes - own_bytes);
  shape.forward.memory_bytes = static_cast<double>(in_bytes + shape.output_bytes + shape.graph_bytes);
  if (!any_gradient && !has_trained(block)) return;

  for (const auto& group : block.groups()) group->begin_gradient();
  nn::Tuple dx;
  const PeakOfBytes backward;
  {
    const FlopCounter flops;
    dx = nn::run_backward(std::move(graph), dy);
    flops.add_to(shape.backward);
  }
  int64_t dx_bytes = 0;
  for (const spec::TensorId input : ids) dx_bytes += is_differentiable(input) ? bytes_of(tensors_.at(input)) : 0;
  shape.backward.scratch_bytes = backward.bytes() - dx_bytes;
  shape.backward.memory_bytes = 2 * shape.forward.memory_bytes;
  if (shape.backward_reads_weights || block.groups().empty()) return;
  // A graph may hold a parameter itself, and a hook may read weights that no graph refers to. Products show in NaN,
  // signs and bounds in weights of the other sign.
  const std::vector<std::byte> made = made_by_backward(block, dx);
  dx.clear();
  shape.backward_reads_weights =
      made_with_other_weights(block, b, dy, true) != made || made_with_other_weights(block, b, dy, false) != made;
}

std::vector<std::byte> BlockTracer::made_with_other_weights(nn::Block& block, int b, const nn::Tuple& dy, bool nan) {
  for (const auto& group : block.groups()) group->begin_gradient();
  nn::Graph graph = nn::run_forward(block, own_inputs(b), context_);
  nn::take_outputs(graph);
  const OtherWeights other(block, nan);
  return made_by_backward(block, nn::run_backward(std::move(graph), dy));
}

// Runs the block twice: once to wake libraries and to get what others read, and once to measure.
void BlockTracer::trace_without_graph(nn::Block& block, int b, const nn::Tuple& inputs, spec::BlockShape& shape) {
  nn::Tuple outputs = nn::run_without_graph(block, inputs, context_);
  if (outputs.empty())
    throw Error(Code::kBadConfig,
                "block \"" + block.name() + "\" gives no tensor\n  fix: a block that returns one or more");
  int64_t read_bytes = 0;
  for (const at::Tensor& input : inputs) shape.input_bytes += bytes_of(input);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const spec::TensorId id(b + 1, static_cast<int>(i));
    shape.outputs.push_back(shape_of(outputs[i], ""));
    shape.output_bytes += bytes_of(outputs[i]);
    if (!is_read(id)) continue;
    read_bytes += bytes_of(outputs[i]);
    tensors_[id] = outputs[i].clone();
  }
  shape.output_bytes = std::max<int64_t>(shape.output_bytes, 1);
  outputs.clear();
  const PeakOfBytes peak;
  outputs = nn::run_without_graph(block, inputs, context_);
  shape.without_graph.scratch_bytes = std::max<int64_t>(0, peak.bytes() - read_bytes);
}

void BlockTracer::trace_loss(nn::LossBlock& block, const at::Tensor& targets, int b, spec::BlockShape& shape) {
  const nn::Tuple inputs = own_inputs(b);
  for (const at::Tensor& input : inputs) shape.input_bytes += bytes_of(input);
  block.loss(inputs, targets, context_, false);
  for (const auto& group : block.groups()) group->begin_gradient();
  const PeakOfBytes peak;
  const FlopCounter flops;
  const nn::LossResult result = block.loss(inputs, targets, context_, true);
  flops.add_to(shape.forward);
  int64_t dx_bytes = 0;
  for (const at::Tensor& dx : result.dx) dx_bytes += dx.defined() ? bytes_of(dx) : 0;
  shape.forward.scratch_bytes = peak.bytes() - dx_bytes;
  shape.forward.memory_bytes = 3 * static_cast<double>(shape.input_bytes);
  forget_what_was_read(b);
}

}  // namespace herd
