#include "herd/chain/trace_chain.h"

#include <ATen/ops/ones_like.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/chain/own_block.h"
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

spec::TensorShape shape_of(const at::Tensor& tensor, const std::string& name) {
  spec::TensorShape shape{.name = name, .bytes = bytes_of(tensor), .dtype = dtype_of(tensor.scalar_type())};
  for (const int64_t size : tensor.sizes()) shape.extents.push_back({size, false});
  return shape;
}

// Traces a chain with micro-batches of one size.
class Tracer {
 public:
  Tracer(const Chain& chain, const TraceOptions& options, Tensors batch, int64_t samples)
      : chain_(chain), options_(options), samples_(samples) {
    const std::vector<std::string> names = chain.batch_names();
    for (size_t i = 0; i < names.size(); ++i) {
      table_.batch.push_back(shape_of(batch.at(i), names[i]));
      table_.batch.back().differentiable = false;
      tensors_[{0, static_cast<int>(i)}] = std::move(batch[i]);
    }
    table_.compute_dtype = options.compute_dtype;
    table_.gradient_dtype = options.gradient_dtype;
    table_.micro_batch = table_.tokens = samples;
    for (int b = 0; b < num_blocks(); ++b) {
      for (const spec::TensorId input : chain.inputs_of(b)) last_reader_[input] = b;
    }
  }

  spec::ModelTable run() {
    for (int b = 0; b < num_blocks(); ++b) trace(b);
    return std::move(table_);
  }

 private:
  int num_blocks() const { return static_cast<int>(chain_.blocks().size()); }

  // Returns the indices of the groups of a block, which are made where the block owns its module.
  std::vector<int> groups_of(const Chain::Block& block) {
    if (block.module.empty()) return {};
    if (block.module == block.name) {
      const auto module = make_module(block, 0);
      for (spec::ParameterGroupShape& group : groups_of_module(block, *module, options_.frozen)) {
        groups_[block.name].push_back(static_cast<int>(table_.groups.size()));
        table_.groups.push_back(std::move(group));
      }
    }
    return groups_[block.module];
  }

  void trace(int b) {
    const Chain::Block& block = chain_.blocks()[static_cast<size_t>(b)];
    spec::BlockShape& shape = table_.blocks.emplace_back();
    shape.name = block.name;
    shape.layer = b;
    shape.inputs = chain_.inputs_of(b);
    shape.groups = groups_of(block);
    OwnBlockParts parts{.block = block, .groups = {}, .module = nullptr};
    std::vector<at::Tensor> memory;
    for (const int g : shape.groups) {
      const spec::ParameterGroupShape& group = table_.groups[static_cast<size_t>(g)];
      parts.groups.push_back(make_group(chain_.owner_of(block), group, scalar_type_of(options_.compute_dtype),
                                        scalar_type_of(options_.gradient_dtype)));
      attach(*parts.groups.back(), memory);
    }
    if (!block.module.empty()) {
      const Chain::Block& owner = chain_.owner_of(block);
      parts.module = std::make_shared<OwnedModule>(owner, make_module(owner, 0), parts.groups,
                                                   scalar_type_of(options_.compute_dtype));
    }
    for (const spec::TensorId input : shape.inputs) {
      const auto tensor = tensors_.find(input);
      if (tensor == tensors_.end())
        throw Error(Code::kBadConfig, "block \"" + block.name + "\" reads tensor " + std::to_string(input.tensor) +
                                          " of block \"" +
                                          chain_.blocks()[static_cast<size_t>(input.producer) - 1].name +
                                          "\", which gives fewer\n  fix: a number that it has, counted from 0");
      parts.differentiates.push_back(is_differentiable(input));
    }
    const bool is_loss = b + 1 == num_blocks();
    const auto own = make_own_block(parts, is_loss);
    const std::vector<at::Tensor> buffers = parts.module ? copies_of_buffers(*parts.module->get()) : Tensors{};
    if (is_loss)
      trace_loss(static_cast<nn::LossBlock&>(*own), shape);
    else
      trace_block(*own, b, shape);
    if (parts.module) check_buffers(block, *parts.module->get(), buffers);
    for (const auto& [tensor, last] : last_reader_) {
      if (last == b) tensors_.erase(tensor);
    }
  }

  static void attach(nn::ParameterGroup& group, std::vector<at::Tensor>& memory) {
    memory.push_back(at::empty({group.elements()}, at::TensorOptions().dtype(group.dtype())));
    group.initialize(0, memory.back());
    group.attach(memory.back());
    if (group.frozen()) return;
    memory.push_back(at::empty({group.elements()}, at::TensorOptions().dtype(group.gradient_dtype())));
    group.attach_gradient(memory.back());
  }

  bool is_differentiable(spec::TensorId tensor) const {
    if (tensor.producer == 0) return false;
    return table_.blocks[static_cast<size_t>(tensor.producer) - 1]
        .outputs[static_cast<size_t>(tensor.tensor)]
        .differentiable;
  }

  nn::Context context() const {
    nn::Context context;
    context.training = true;
    context.samples.assign(static_cast<size_t>(samples_), 0);
    for (int64_t i = 0; i < samples_; ++i) context.samples[static_cast<size_t>(i)] = i;
    return context;
  }

  // Returns copies of what a block reads, so that nothing else holds their memory.
  Tensors own_inputs(const spec::BlockShape& shape) const {
    Tensors inputs;
    for (const spec::TensorId input : shape.inputs) inputs.push_back(tensors_.at(input).clone());
    return inputs;
  }

  static bool has_trained(const nn::Block& block) {
    return std::ranges::any_of(block.groups(), [](const auto& group) { return !group->frozen(); });
  }

  bool is_read(spec::TensorId tensor) const { return last_reader_.contains(tensor); }

  void trace_block(nn::Block& block, int b, spec::BlockShape& shape) {
    Tensors inputs = own_inputs(shape);
    trace_without_graph(block, b, inputs, shape);
    std::map<spec::TensorId, WeakStorage> storages;
    int64_t in_bytes = 0, read_bytes = 0, dy_bytes = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      storages.emplace(shape.inputs[i], weak(inputs[i]));
      in_bytes += bytes_of(inputs[i]);
    }
    const PeakOfBytes begin;
    nn::Graph graph;
    {
      const FlopCounter flops;
      graph = nn::run_forward(block, inputs, context());
      flops.add_to(shape.forward);
    }
    const int64_t forward_peak = begin.bytes();
    bool any_gradient = false;
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      shape.outputs[i].differentiable = graph.outputs[i].requires_grad();
      any_gradient = any_gradient || graph.outputs[i].requires_grad();
    }
    Tensors outputs = nn::take_outputs(graph), dy;
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
    const PeakOfBytes backward;
    {
      const FlopCounter flops;
      const Tensors dx = nn::run_backward(std::move(graph), dy);
      flops.add_to(shape.backward);
    }
    int64_t dx_bytes = 0;
    for (const spec::TensorId input : shape.inputs)
      dx_bytes += is_differentiable(input) ? bytes_of(tensors_.at(input)) : 0;
    shape.backward.scratch_bytes = backward.bytes() - dx_bytes;
    shape.backward.memory_bytes = 2 * shape.forward.memory_bytes;
  }

  // Runs the block twice: once to wake libraries and to get what others read, and once to measure.
  void trace_without_graph(nn::Block& block, int b, const Tensors& inputs, spec::BlockShape& shape) {
    Tensors outputs = nn::run_without_graph(block, inputs, context());
    if (outputs.empty()) throw Error(Code::kBadConfig, "block \"" + block.name() + "\" gives no tensor");
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
    outputs = nn::run_without_graph(block, inputs, context());
    shape.without_graph.scratch_bytes = std::max<int64_t>(0, peak.bytes() - read_bytes);
  }

  void trace_loss(nn::LossBlock& block, spec::BlockShape& shape) {
    const Tensors inputs = own_inputs(shape);
    for (const at::Tensor& input : inputs) shape.input_bytes += bytes_of(input);
    block.loss(inputs, {}, context(), false);
    for (const auto& group : block.groups()) group->begin_gradient();
    const PeakOfBytes peak;
    const FlopCounter flops;
    const nn::LossResult result = block.loss(inputs, {}, context(), true);
    flops.add_to(shape.forward);
    int64_t dx_bytes = 0;
    for (const at::Tensor& dx : result.dx) dx_bytes += dx.defined() ? bytes_of(dx) : 0;
    shape.forward.scratch_bytes = peak.bytes() - dx_bytes;
    shape.forward.memory_bytes = 3 * static_cast<double>(shape.input_bytes);
  }

  static Tensors copies_of_buffers(const torch::nn::Module& module) {
    Tensors copies;
    for (const auto& item : module.named_buffers()) copies.push_back(item.value().clone());
    return copies;
  }
  static void check_buffers(const Chain::Block& block, const torch::nn::Module& module, const Tensors& before) {
    size_t next = 0;
    for (const auto& item : module.named_buffers()) {
      const at::Tensor& old = before[next++];
      if (item.value().equal(old)) continue;
      throw Error(Code::kBadConfig,
                  "block \"" + block.name + "\" changes its buffer " + item.key() +
                      " as it runs, which no checkpoint of this version saves and no layout repeats\n  fix: a norm "
                      "without running statistics, such as torch::nn::LayerNorm or GroupNorm");
    }
  }

  const Chain& chain_;
  const TraceOptions& options_;
  const int64_t samples_;
  spec::ModelTable table_;
  std::map<std::string, std::vector<int>> groups_;  // by the block that owns the module
  std::map<spec::TensorId, at::Tensor> tensors_;    // those that a later block reads
  std::map<spec::TensorId, int> last_reader_;
};

// Finds which sizes count samples, by two traces.
void find_extents(const std::string& what, std::vector<spec::TensorShape>& small, int64_t small_samples,
                  std::vector<spec::TensorShape>& large, int64_t large_samples) {
  if (small.size() != large.size())
    throw Error(Code::kBadConfig, what + " gives " + std::to_string(small.size()) + " tensors for " +
                                      std::to_string(small_samples) + " samples, and " + std::to_string(large.size()) +
                                      " for " + std::to_string(large_samples) +
                                      "\n  fix: the same tensors for every batch");
  for (size_t i = 0; i < small.size(); ++i) {
    auto &a = small[i].extents, &b = large[i].extents;
    bool fits = a.size() == b.size() && small[i].dtype == large[i].dtype;
    for (size_t d = 0; fits && d < a.size(); ++d) {
      const int64_t s = a[d].factor, l = b[d].factor;
      if (s == l) continue;
      fits = s % small_samples == 0 && l % large_samples == 0 && s / small_samples == l / large_samples;
      a[d] = b[d] = {s / small_samples, true};
    }
    if (!fits)
      throw Error(Code::kBadConfig, "tensor " + std::to_string(i) + " of " + what +
                                        " has sizes that are neither fixed nor a multiple of the samples: they do not "
                                        "repeat from " +
                                        std::to_string(small_samples) + " to " + std::to_string(large_samples) +
                                        " samples\n  fix: shapes that depend on the number of samples alone");
  }
}

}  // namespace

spec::ChainTable trace_chain(const Chain& chain, const ExampleBatch& example, const TraceOptions& options) {
  if (chain.blocks().empty()) throw Error(Code::kBadConfig, "the chain has no blocks\n  fix: Chain::add()");
  DeviceMemory::install();
  const int64_t budget = DeviceMemory::budget();
  DeviceMemory::set_budget(0);
  const int64_t large = std::max<int64_t>(2, options.samples), small = std::max<int64_t>(1, large / 2);
  spec::ModelTable tables[2];
  try {
    tables[0] = Tracer(chain, options, example(small), small).run();
    tables[1] = Tracer(chain, options, example(large), large).run();
  } catch (...) {
    DeviceMemory::set_budget(budget);
    throw;
  }
  DeviceMemory::set_budget(budget);
  DeviceMemory::reset_peak();
  find_extents("the batch", tables[0].batch, small, tables[1].batch, large);
  for (size_t b = 0; b < tables[0].blocks.size(); ++b)
    find_extents("block \"" + tables[0].blocks[b].name + "\"", tables[0].blocks[b].outputs, small,
                 tables[1].blocks[b].outputs, large);
  if (tables[0].first_trained() == static_cast<int>(tables[0].blocks.size()))
    throw Error(Code::kBadConfig,
                "no block of the chain has a parameter that is trained\n  fix: a module with "
                "parameters, or a shorter model.frozen");
  return {small, std::move(tables[0]), large, std::move(tables[1])};
}

}  // namespace herd
