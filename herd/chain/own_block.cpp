#include "herd/chain/own_block.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>

#include "herd/base/error.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/chain/run_named.h"
#include "herd/nn/philox.h"
#include "herd/nn/run_block.h"
#include "herd/spec/frozen.h"

namespace herd {
namespace {

// Seeds torch's generator, and gives it back the state that it had. The generator is one of the process, so ranks that
// are threads of it take turns.
class SeededGenerator {
 public:
  explicit SeededGenerator(uint64_t seed) : turn_(mutex_), generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  static inline std::mutex mutex_;
  const std::lock_guard<std::mutex> turn_;
  at::Generator generator_;
  at::Tensor state_;
};

// Lifts the device budget while a module is built: its weights are on the host until they move into their groups.
class WithoutBudget {
 public:
  WithoutBudget() : budget_(DeviceMemory::budget()) { DeviceMemory::set_budget(0); }
  ~WithoutBudget() { DeviceMemory::set_budget(budget_); }
  WithoutBudget(const WithoutBudget&) = delete;
  WithoutBudget& operator=(const WithoutBudget&) = delete;

 private:
  int64_t budget_;
};

std::string full_name(const Chain::Block& owner, const std::string& parameter) { return owner.name + "." + parameter; }

std::string sizes_text(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// Returns "[2, 8] Float, [2] Long".
std::string shapes_text(const Tensors& tensors) {
  std::string text;
  for (const at::Tensor& x : tensors)
    text += (text.empty() ? "" : ", ") + sizes_text(x.sizes()) + " " + c10::toString(x.scalar_type());
  return text;
}

bool can_move(at::ScalarType type) {
  try {
    dtype_of(type);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Refuses tensors that no other block could read: those that are missing, sparse, or of a type that herd can't send.
void check_kinds(const std::string& name, const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& tensor = outputs[i];
    const auto refuse = [&](const std::string& what, const std::string& fix) {
      throw Error(Code::kBadConfig,
                  "tensor " + std::to_string(i) + " of block \"" + name + "\" is " + what + "\n  fix: " + fix);
    };
    if (!tensor.defined())
      refuse("undefined", "a tensor in each place of what it returns, or fewer of them for every batch");
    if (tensor.layout() != at::kStrided) refuse("sparse", "its to_dense()");
    if (!can_move(tensor.scalar_type()))
      refuse(std::string("of type ") + c10::toString(tensor.scalar_type()) + ", which no rank can send to another",
             tensor.is_complex() ? "torch::view_as_real() of it, and torch::view_as_complex() in a block that reads it"
                                 : "a tensor of floating, whole or bool numbers");
  }
}

// Finds out whether the block changes in place what it reads, or its parameters: other readers of a tensor, a pass that
// is computed again and ranks with a copy or a shard of a weight would go on with other values.
class InPlaceCheck {
 public:
  InPlaceCheck(const OwnBlockParts& parts, const Tensors& x) : parts_(parts), x_(x), before_(versions()) {}

  void check() const {
    const std::vector<uint32_t> after = versions();
    const size_t place = static_cast<size_t>(std::ranges::mismatch(before_, after).in1 - before_.begin());
    if (place == before_.size()) return;
    const std::string block = "block \"" + parts_.block.name + "\" changes in place ";
    if (place < x_.size())
      throw Error(Code::kBadConfig, block + "tensor " + std::to_string(place) +
                                        " of those that it reads\n  fix: an operation that gives a new "
                                        "tensor, such as x.mul(2) for x.mul_(2), or one on x.clone()");
    throw Error(Code::kBadConfig, block + "its parameter " + parameters_in_order()[place - x_.size()]->spec().name +
                                      "\n  fix: an operation that gives a new tensor, such as w.clamp(-1, 1) "
                                      "for w.clamp_(-1, 1), or register_buffer() for what is not trained");
  }

 private:
  std::vector<const nn::Parameter*> parameters_in_order() const {
    std::vector<const nn::Parameter*> parameters;
    for (const auto& group : parts_.groups) {
      for (const nn::Parameter& parameter : group->parameters()) parameters.push_back(&parameter);
    }
    return parameters;
  }
  std::vector<uint32_t> versions() const {
    std::vector<uint32_t> versions;
    for (const at::Tensor& tensor : x_) versions.push_back(static_cast<uint32_t>(tensor._version()));
    for (const nn::Parameter* parameter : parameters_in_order())
      versions.push_back(static_cast<uint32_t>(parameter->value()._version()));
    return versions;
  }

  const OwnBlockParts& parts_;
  const Tensors& x_;
  const std::vector<uint32_t> before_;
};

// Compares what a block gives with what the trace has seen.
void check_outputs(const std::string& name, const std::vector<spec::TensorShape>& traced, const Tensors& outputs,
                   int64_t samples, int64_t tokens) {
  if (traced.empty()) return;
  if (outputs.size() != traced.size())
    throw Error(Code::kBadConfig,
                "block \"" + name + "\" gives " + std::to_string(outputs.size()) + " tensors, and gave " +
                    std::to_string(traced.size()) +
                    " when it was traced\n  fix: a block that gives the same tensors for every batch");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<int64_t> expected = traced[i].sizes(samples, tokens);
    if (outputs[i].sizes() == at::IntArrayRef(expected) && outputs[i].scalar_type() == scalar_type_of(traced[i].dtype))
      continue;
    throw Error(Code::kBadConfig, "block \"" + name + "\" gives " + sizes_text(outputs[i].sizes()) + " " +
                                      c10::toString(outputs[i].scalar_type()) + " as tensor " + std::to_string(i) +
                                      ", and its trace expects " + sizes_text(expected) + " " +
                                      std::string(dtype_name(traced[i].dtype)) + " for " + std::to_string(samples) +
                                      " samples" + (tokens == 1 ? "" : " of " + std::to_string(tokens) + " tokens") +
                                      "\n  fix: shapes that depend on the number of samples alone, or on the tokens "
                                      "that ChainData::tokens counts");
  }
}

// Gives buffers back what they held when a pass ends that is not the first over its samples. It writes past autograd's
// count of versions: the graph of a batch norm refers to its running mean, and does not read it in training. What is
// kept is on the host's heap, beside the memory that a budget counts.
class KeptBuffers {
 public:
  explicit KeptBuffers(const std::vector<nn::Buffer>& buffers) : buffers_(buffers) {
    for (const nn::Buffer& buffer : buffers) {
      bytes_.emplace_back(buffer.value.nbytes());
      view(buffer.value, bytes_.back()).copy_(buffer.value.variable_data());
    }
  }
  ~KeptBuffers() {
    for (size_t i = 0; i < buffers_.size(); ++i)
      buffers_[i].value.variable_data().copy_(view(buffers_[i].value, bytes_[i]));
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  static at::Tensor view(const at::Tensor& like, std::vector<std::byte>& bytes) {
    return at::from_blob(bytes.data(), like.sizes(), at::TensorOptions(like.scalar_type()));
  }

  const std::vector<nn::Buffer>& buffers_;
  std::vector<std::vector<std::byte>> bytes_;
};

// Runs the block on this rank. One row that stands in for samples is no statistic: a batch norm would refuse it.
Tensors run(const OwnBlockParts& parts, const Tensors& x, const nn::Context& context) {
  torch::nn::Module* module = parts.module ? parts.module->get() : nullptr;
  const bool trains =
      context.training && !(context.samples.empty() && parts.module && !parts.module->buffers().empty());
  if (module != nullptr && module->is_training() != trains) module->train(trains);
  std::optional<KeptBuffers> kept;
  if (module != nullptr && trains && !context.updates_buffers && !parts.module->buffers().empty())
    kept.emplace(parts.module->buffers());
  const uint64_t first = context.samples.empty() ? 0 : static_cast<uint64_t>(context.samples[0]);
  uint64_t key = nn::mix(context.seed, nn::hash_name(parts.block.name));
  for (const uint64_t part : {static_cast<uint64_t>(context.step), first}) key = nn::mix(key, part);
  const SeededGenerator generator(key);
  const InPlaceCheck in_place(parts, x);
  Tensors y =
      run_named([&] { return parts.block.run(module, x); },
                [&](const std::string& words) {
                  return Error(Code::kBadConfig,
                               "block \"" + parts.block.name + "\" throws: " + words +
                                   "\n  fix: what it does with the tensors that it reads, " + shapes_text(x) +
                                   "; where torch has no such kernel for 16 bits, strategy.precision = \"fp32\"");
                });
  in_place.check();
  check_kinds(parts.block.name, y);
  return y;
}

// Runs a pass of autograd through what the block has computed, which calls the program's own functions and hooks.
void differentiate(const OwnBlockParts& parts, const std::function<void()>& pass) {
  run_named(pass, [&](const std::string& words) {
    return Error(Code::kBadConfig, "the backward of block \"" + parts.block.name + "\" throws: " + words +
                                       "\n  fix: what the block does with tensors that its backward reads, and "
                                       "autograd functions and hooks of its own");
  });
}

// Returns tensors with memory of their own, as the table counts it: a view would keep all of what it views, one of a
// weight would change with it, and one of an input would be two tensors in one buffer.
Tensors with_own_memory(Tensors y, const OwnBlockParts& parts, const Tensors& x) {
  std::set<const void*> used;
  for (const at::Tensor& input : x) used.insert(input.storage().unsafeGetStorageImpl());
  for (const auto& group : parts.groups) {
    for (const nn::Parameter& parameter : group->parameters())
      used.insert(parameter.value().storage().unsafeGetStorageImpl());
  }
  for (at::Tensor& tensor : y) {
    if (!tensor.defined()) continue;
    const bool is_whole = tensor.is_contiguous() && tensor.storage().nbytes() == tensor.nbytes();
    if (!is_whole || used.contains(tensor.storage().unsafeGetStorageImpl()))
      tensor = tensor.clone(at::MemoryFormat::Contiguous);
    used.insert(tensor.storage().unsafeGetStorageImpl());
  }
  return y;
}

// Blocks that share a module share its buffers.
std::vector<nn::Buffer> buffers_of(const OwnBlockParts& parts) {
  return parts.module ? parts.module->buffers() : std::vector<nn::Buffer>{};
}

class OwnBlock final : public nn::Block {
 public:
  explicit OwnBlock(OwnBlockParts parts) : Block(parts.block.name, parts.groups), parts_(std::move(parts)) {}
  nn::Tuple forward(const nn::Tuple& x, const nn::Context& context) override {
    nn::Tuple y = with_own_memory(run(parts_, x, context), parts_, x);
    check_outputs(name(), parts_.outputs, y, std::max<int64_t>(1, static_cast<int64_t>(context.samples.size())),
                  context.tokens);
    return y;
  }
  bool differentiates_input(size_t input) const override {
    return parts_.differentiates.empty() || parts_.differentiates.at(input);
  }
  std::vector<nn::Buffer> buffers() const override { return buffers_of(parts_); }
  void run_autograd(const std::function<void()>& pass) const override { differentiate(parts_, pass); }

 private:
  OwnBlockParts parts_;
};

class OwnLoss final : public nn::LossBlock {
 public:
  explicit OwnLoss(OwnBlockParts parts) : LossBlock(parts.block.name, parts.groups), parts_(std::move(parts)) {}
  nn::Tuple forward(const nn::Tuple& x, const nn::Context& context) override {
    nn::Tuple y = run(parts_, x, context);
    const bool is_loss = y.size() == 2 + parts_.figures.size() && y[0].is_floating_point() &&
                         std::ranges::all_of(y, [](const at::Tensor& number) { return number.numel() == 1; });
    if (!is_loss) {
      std::string figures;
      for (const std::string& figure : parts_.figures) figures += ", " + figure;
      throw Error(Code::kBadConfig, "the last block, \"" + name() + "\", gives " + std::to_string(y.size()) +
                                        " tensors, where it must give " +
                                        (figures.empty() ? "two" : std::to_string(2 + parts_.figures.size())) +
                                        " numbers: the sum of the losses and how many of them count" +
                                        (figures.empty() ? "" : ", then what Chain::report() names" + figures) +
                                        "\n  fix: return Tensors{loss_sum, count" + figures + "}");
    }
    return y;
  }
  bool differentiates_input(size_t input) const override {
    return parts_.differentiates.empty() || parts_.differentiates.at(input);
  }
  std::vector<nn::Buffer> buffers() const override { return buffers_of(parts_); }
  void run_autograd(const std::function<void()>& pass) const override { differentiate(parts_, pass); }

  nn::LossResult loss(const nn::Tuple& x, const at::Tensor&, const nn::Context& context, bool with_gradients,
                      nn::DeferredGradients*) override {
    if (context.samples.empty()) {  // a stand-in for samples: its passes only keep the ranks in step
      if (with_gradients) nn::finish_gradients(groups(), nullptr);
      return {.sum = 0, .count = 0, .dx = nn::Tuple(x.size())};
    }
    if (!with_gradients) {
      const nn::Tuple numbers = nn::run_without_graph(*this, x, context);
      nn::LossResult result = result_of(numbers);
      for (size_t i = 2; i < numbers.size(); ++i) result.figures.push_back(numbers[i].item<double>());
      return result;
    }
    nn::Graph graph = nn::run_forward(*this, x, context);
    nn::LossResult result = result_of(graph.outputs);
    const at::Tensor weight =
        at::full(graph.outputs[0].sizes(), context.loss_weight, graph.outputs[0].options().requires_grad(false));
    nn::Tuple dy(graph.outputs.size());
    dy[0] = weight;
    result.dx = nn::run_backward(std::move(graph), dy);
    return result;
  }

 private:
  static nn::LossResult result_of(const nn::Tuple& sum_count) {
    if (sum_count[0].is_cpu()) return {.sum = sum_count[0].item<double>(), .count = sum_count[1].item<int64_t>()};
    return {.on_device = at::stack({sum_count[0].detach().to(at::kDouble), sum_count[1].to(at::kDouble)})};
  }

  OwnBlockParts parts_;
};

}  // namespace

std::shared_ptr<torch::nn::Module> make_module(const Chain::Block& owner, uint64_t seed) {
  const SeededGenerator generator(nn::mix(seed, nn::hash_name(owner.module)));
  const WithoutBudget unlimited;
  std::shared_ptr<torch::nn::Module> module = run_named(owner.make, [&](const std::string& words) {
    return Error(Code::kBadConfig, "the factory of block \"" + owner.name + "\" throws: " + words +
                                       "\n  fix: a factory that builds its module on every rank");
  });
  if (module == nullptr)
    throw Error(Code::kBadConfig, "the factory of block \"" + owner.name +
                                      "\" returned no module\n  fix: a factory that builds one in each call");
  return module;
}

std::vector<spec::ParameterGroupShape> groups_of_module(const Chain::Block& owner, const torch::nn::Module& module,
                                                        const std::string& frozen) {
  spec::ParameterGroupShape trained{.name = owner.name, .parameters = {}},
      kept{.name = owner.name, .parameters = {}, .frozen = true};
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    const std::string name = full_name(owner, item.key());
    if (!item.value().is_floating_point())
      throw Error(Code::kBadConfig,
                  "parameter " + name + " is of " + c10::toString(item.value().scalar_type()) +
                      ", which no optimizer updates\n  fix: " +
                      (item.value().is_complex() ? "a parameter of torch::view_as_real() of it" : "register_buffer()"));
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second)
      throw Error(Code::kBadConfig, "block \"" + owner.name + "\" registers " + name +
                                        " twice\n  fix: register a shared parameter once, or use "
                                        "Chain::add_shared() for a block that shares a module");
    if (item.value().numel() == 0) continue;
    const bool is_frozen = spec::is_frozen(frozen, name) || !item.value().requires_grad();
    (is_frozen ? kept : trained).parameters.push_back({name, item.value().sizes().vec()});
  }
  std::vector<spec::ParameterGroupShape> groups;
  if (!trained.parameters.empty()) groups.push_back(trained);
  if (!trained.parameters.empty()) kept.name = spec::frozen_group_name(owner.name);
  if (!kept.parameters.empty()) groups.push_back(kept);
  return groups;
}

namespace {

[[noreturn]] void refuse_other_module(const Chain::Block& owner, const std::string& difference) {
  throw Error(Code::kBadConfig, "the factory of block \"" + owner.name +
                                    "\" builds another module than when it was traced: " + difference +
                                    "\n  fix: a factory that builds the same module each time, on every rank");
}

// Compares a parameter or a buffer of a module with the one of the table; null where the module has none.
void check_same(const Chain::Block& owner, const std::string& kind, const spec::ParameterShape& traced,
                const at::Tensor* found) {
  if (found != nullptr && found->sizes() == at::IntArrayRef(traced.sizes)) return;
  refuse_other_module(owner, kind + " " + traced.name + " had sizes " + sizes_text(traced.sizes) + ", and " +
                                 (found == nullptr ? "is missing now" : "has " + sizes_text(found->sizes()) + " now"));
}

// Compares a module that the owner's factory has made again with what the table has of the first one.
void check_module(const Chain::Block& owner, const torch::nn::Module& module,
                  const std::vector<spec::ParameterShape>& parameters,
                  const std::vector<spec::ParameterShape>& buffers) {
  const auto made = module.named_parameters(), held = module.named_buffers();
  std::set<std::string> traced;
  for (const spec::ParameterShape& parameter : parameters) {
    traced.insert(parameter.name);
    check_same(owner, "parameter", parameter, made.find(parameter.name.substr(owner.name.size() + 1)));
  }
  for (const auto& item : made) {
    const std::string name = full_name(owner, item.key());
    if (!traced.contains(name) && item.value().numel() > 0) refuse_other_module(owner, "it had no parameter " + name);
  }
  for (const spec::ParameterShape& buffer : buffers)
    check_same(owner, "buffer", buffer, held.find(buffer.name.substr(owner.name.size() + 1)));
}

std::vector<spec::ParameterShape> shapes_of(const std::vector<std::shared_ptr<nn::ParameterGroup>>& groups) {
  std::vector<spec::ParameterShape> shapes;
  for (const auto& group : groups) {
    for (const nn::Parameter& parameter : group->parameters())
      shapes.push_back({parameter.spec().name, parameter.spec().sizes});
  }
  return shapes;
}

}  // namespace

std::shared_ptr<nn::ParameterGroup> make_group(const Chain::Block& owner, const spec::ParameterGroupShape& shape,
                                               at::ScalarType dtype, at::ScalarType gradient_dtype, at::Device device) {
  std::vector<nn::ParameterSpec> specs;
  for (const spec::ParameterShape& parameter : shape.parameters)
    specs.push_back({.name = parameter.name, .sizes = parameter.sizes, .decay = parameter.sizes.size() > 1});
  nn::GroupOptions options{.dtype = dtype, .gradient_dtype = gradient_dtype, .device = device, .frozen = shape.frozen};
  options.initial_weights = [owner, shape](uint64_t seed) {
    const WithoutBudget unlimited;
    const std::shared_ptr<torch::nn::Module> module = make_module(owner, seed);
    const auto parameters = module->named_parameters();
    std::vector<at::Tensor> parts;
    for (const spec::ParameterShape& parameter : shape.parameters) {
      const at::Tensor* made = parameters.find(parameter.name.substr(owner.name.size() + 1));
      check_same(owner, "parameter", parameter, made);
      parts.push_back(made->detach().to(at::kFloat).reshape({-1}));
    }
    return at::cat(parts);
  };
  return std::make_shared<nn::ParameterGroup>(shape.name, std::move(specs), options);
}

OwnedModule::OwnedModule(const Chain::Block& owner, std::shared_ptr<torch::nn::Module> module,
                         const std::vector<std::shared_ptr<nn::ParameterGroup>>& groups, at::ScalarType dtype,
                         at::Device device, const std::vector<spec::ParameterShape>& changing)
    : module_(std::move(module)) {
  check_module(owner, *module_, shapes_of(groups), changing);
  for (auto& item : module_->named_parameters()) {
    at::Tensor& parameter = item.value();
    if (parameter.numel() > 0)
      nn::find(groups, full_name(owner, item.key())).take_over(parameter);
    else
      parameter.set_requires_grad(false).set_data(parameter.to(device, dtype));
  }
  for (auto& item : module_->named_buffers()) {
    item.value().set_data(item.value().is_floating_point() ? item.value().to(device, dtype) : item.value().to(device));
    const std::string name = full_name(owner, item.key());
    if (std::ranges::find(changing, name, &spec::ParameterShape::name) != changing.end())
      buffers_.push_back({name, item.value()});
  }
}

std::shared_ptr<nn::Block> make_own_block(OwnBlockParts parts, bool is_loss) {
  if (is_loss) return std::make_shared<OwnLoss>(std::move(parts));
  return std::make_shared<OwnBlock>(std::move(parts));
}

}  // namespace herd
