// Operations of the device "later". Every kernel of the CPU becomes one of the device: the result's sizes and strides
// come from a run over zeros at once, the values from a run over the true elements once the stream gets there.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <set>

#include "tests/device/later_device.h"
#include "tests/device/later_memory.h"
#include "tests/device/later_torch.h"

namespace herd::later {
namespace {

using torch::jit::Stack;
using Guard = at::AutoDispatchBelowADInplaceOrView;

void wait_for(Stream* stream, const char* reason) {
  note_synchronisation(reason);
  Streams::get().wait(Streams::get().record(stream));
}

// Returns the value with every tensor replaced by map(tensor), and devices by the CPU.
template <typename Map>
c10::IValue map_tensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) return value.toTensor().defined() ? map(value.toTensor()) : value.toTensor();
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& tensor : value.toTensorVector()) mapped.push_back(tensor.defined() ? map(tensor) : tensor);
    return mapped;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      const bool given = tensor.has_value() && tensor->defined();
      mapped.push_back(given ? std::optional<at::Tensor>(map(*tensor)) : std::nullopt);
    }
    return mapped;
  }
  return value;
}

template <typename Map>
Stack map_all(c10::ArrayRef<c10::IValue> values, const Map& map) {
  Stack mapped;
  for (const c10::IValue& value : values) mapped.push_back(map_tensors(value, map));
  return mapped;
}

std::vector<at::Tensor> tensors_of(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  map_all(values, [&](const at::Tensor& tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
  return tensors;
}

// Returns a tensor of the host as the job will see it: as it is now.
at::Tensor snapshot(const at::Tensor& tensor) {
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

// Returns elements of one value that lie as those of `tensor` do.
at::Tensor stand_in(const at::Tensor& tensor, int value) {
  if (!tensor.is_privateuseone()) return snapshot(tensor);
  const int64_t span = static_cast<int64_t>(at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), 1));
  const at::Tensor memory = at::full({span}, value, at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU));
  return memory.as_strided(tensor.sizes(), tensor.strides());
}

// One call of an operation with tensors of the device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack)
      : op_(op), schema_(op.schema()), stack_(stack), name_(schema_.name().substr(schema_.name().find("::") + 2)) {
    arguments_ = torch::jit::last(*stack, schema_.arguments().size()).vec();
    find_device();
    stream_ = current_stream(device_.index());
  }

  void run() {
    const Guard guard;
    require_one_device();
    Stack results;
    if (is_view()) {
      results = view();
    } else if (needs_values()) {
      results = run_now();
    } else {
      results = run_later();
    }
    torch::jit::drop(*stack_, arguments_.size());
    for (c10::IValue& result : results) stack_->push_back(std::move(result));
  }

 private:
  void find_device() {
    std::optional<c10::Device> device;
    for (const at::Tensor& tensor : tensors_of(arguments_)) {
      if (tensor.is_privateuseone()) device = tensor.device();
    }
    for (const c10::IValue& value : arguments_) {
      if (!device.has_value() && value.isDevice()) device = value.toDevice();
    }
    TORCH_CHECK(device.has_value() && device->type() == c10::kPrivateUse1, schema_.name(),
                " was sent to device later without a tensor there");
    device_ = c10::Device(c10::kPrivateUse1, device->has_index() ? device->index() : later_guard().getDevice().index());
  }
  static const c10::impl::DeviceGuardImplInterface& later_guard() {
    return *c10::impl::getDeviceGuardImpl(c10::kPrivateUse1);
  }

  // A number may come from the host, and indices of x[i], as with CUDA; index_select() and index_add() take none.
  void require_one_device() const {
    const bool indexes = name_ == "index" || name_ == "index_put" || name_ == "index_put_" ||
                         name_ == "_index_put_impl_" || name_ == "_unsafe_index" || name_ == "_unsafe_index_put";
    for (const at::Tensor& tensor : tensors_of(arguments_)) {
      TORCH_CHECK(
          tensor.device() == device_ || tensor.dim() == 0 || (indexes && !at::isFloatingType(tensor.scalar_type())),
          schema_.name(), ": expected all tensors to be on ", device_, ", but one of sizes ", tensor.sizes(), " is on ",
          tensor.device());
    }
  }

  bool is_view() const {
    for (const auto& result : schema_.returns()) {
      if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
    }
    return false;
  }

  // Whether sizes or results are known only with the values.
  bool needs_values() const {
    static const std::set<std::string> names = {"nonzero",
                                                "masked_select",
                                                "_unique",
                                                "_unique2",
                                                "unique_dim",
                                                "unique_consecutive",
                                                "unique_dim_consecutive",
                                                "bincount",
                                                "repeat_interleave",
                                                "nonzero_static",
                                                "_assert_async"};
    if (names.count(name_) != 0 && name_ != "_assert_async") return true;
    if (name_.find("index") == 0 || name_.find("_index") == 0) {
      for (const at::Tensor& tensor : tensors_of(c10::IValue(arguments_[1]))) {
        if (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte) return true;
      }
    }
    for (const auto& result : schema_.returns()) {
      const auto kind = result.type()->kind();
      if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return !is_known_number();
    }
    return false;
  }
  // Attention returns lengths beside its tensors, which follow from sizes.
  bool is_known_number() const { return name_.find("_scaled_dot_product") == 0; }

  Stack as_cpu_stack() const {
    return map_all(arguments_, [](const at::Tensor& tensor) {
      return tensor.is_privateuseone() ? as_cpu(tensor) : snapshot(tensor);
    });
  }

  // Views touch no element.
  Stack view() const {
    Stack stack = as_cpu_stack();
    op_.callBoxed(&stack);
    const at::Tensor base = tensors_of(arguments_).at(0);
    const auto* begin = static_cast<const char*>(base.const_data_ptr());
    return map_all(stack, [&](const at::Tensor& seen) {
      TORCH_CHECK(seen.scalar_type() == base.scalar_type(), schema_.name(), " on device later changes the type");
      const auto bytes = static_cast<const char*>(seen.const_data_ptr()) - begin;
      const int64_t offset = seen.numel() == 0 ? 0 : bytes / static_cast<int64_t>(base.element_size());
      return at::native::as_strided_tensorimpl(base, seen.sizes(), seen.strides(), base.storage_offset() + offset);
    });
  }

  Stack run_now() {
    auto stack = std::make_shared<Stack>(as_cpu_stack());
    Streams::get().enqueue(stream_, [op = op_, stack] {
      const Guard guard;
      op.callBoxed(stack.get());
    });
    wait_for(stream_, name_.c_str());
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;
    Stack results = place_results(*stack, &copies);
    for (const auto& [to, from] : copies) {
      Streams::get().enqueue(stream_, [to_cpu = as_cpu(to), from_cpu = from] { copy_in_job(to_cpu, from_cpu); });
    }
    return results;
  }

  Stack run_later() {
    const bool resizes = resize_empty_outputs();
    Stack stood_in;
    if (!resizes && returns_new()) stood_in = run_stand_in();
    if (stood_in.empty()) stood_in.resize(schema_.returns().size());
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;
    Stack results = place_results(stood_in, &copies);
    // Results are matched with what the job computes by their order.
    std::vector<at::Tensor> targets;
    for (const auto& [to, from] : copies) targets.push_back(as_cpu(to));
    Streams::get().enqueue(stream_, [op = op_, stack = as_cpu_stack(), targets, fresh = new_returns()]() mutable {
      const Guard guard;
      op.callBoxed(&stack);
      std::vector<c10::IValue> made;
      for (size_t i = 0; i < stack.size(); ++i) {
        if (fresh[i]) made.push_back(stack[i]);
      }
      const auto tensors = tensors_of(made);
      TORCH_CHECK(tensors.size() == targets.size(), op.schema().name(), " returned more for values than for zeros");
      for (size_t i = 0; i < targets.size(); ++i) copy_in_job(targets[i], tensors[i]);
    });
    return results;
  }

  static void copy_in_job(const at::Tensor& to, const at::Tensor& from) {
    const Guard guard;
    TORCH_CHECK(to.sizes() == from.sizes(), "values gave sizes ", from.sizes(), ", zeros ", to.sizes());
    to.copy_(from);
  }

  std::vector<bool> new_returns() const {
    std::vector<bool> fresh;
    for (const auto& result : schema_.returns()) fresh.push_back(result.alias_info() == nullptr);
    return fresh;
  }
  bool returns_new() const {
    const auto fresh = new_returns();
    return std::find(fresh.begin(), fresh.end(), true) != fresh.end();
  }

  // Zeros are valid indices, but no divisors.
  Stack run_stand_in() const {
    for (const int value : {0, 1}) {
      Stack stack = map_all(arguments_, [&](const at::Tensor& tensor) { return stand_in(tensor, value); });
      try {
        op_.callBoxed(&stack);
        return stack;
      } catch (const c10::Error&) {
        if (value == 1) break;
      }
    }
    Stack stack = map_all(arguments_, [&](const at::Tensor& tensor) { return stand_in(tensor, 0); });
    op_.callBoxed(&stack);  // throws what the caller is to see
    return stack;
  }

  // Gives outputs without elements their sizes. Returns whether there were any.
  bool resize_empty_outputs() {
    bool resized = false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto& argument = schema_.arguments()[i];
      const bool is_output = argument.kwarg_only() && argument.alias_info() != nullptr &&
                             argument.alias_info()->isWrite() && arguments_[i].isTensor();
      if (!is_output || arguments_[i].toTensor().numel() != 0) continue;
      Stack stack = map_all(arguments_, [](const at::Tensor& tensor) { return stand_in(tensor, 0); });
      const at::Tensor seen = stack[i].toTensor();
      op_.callBoxed(&stack);
      arguments_[i].toTensor().resize_(seen.sizes());
      resized = true;
    }
    return resized;
  }

  // Returns what the call returns: arguments that it writes, and for every new tensor of `made` one of the device,
  // which `copies` gets with it.
  Stack place_results(const Stack& made, std::vector<std::pair<at::Tensor, at::Tensor>>* copies) const {
    Stack results;
    for (size_t i = 0; i < schema_.returns().size(); ++i) {
      const auto* alias = schema_.returns()[i].alias_info();
      if (alias != nullptr) {
        results.push_back(written_argument(*alias));
        continue;
      }
      results.push_back(map_tensors(made[i], [&](const at::Tensor& tensor) {
        at::Tensor placed =
            at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device_).requires_grad(false));
        copies->push_back({placed, tensor});
        return placed;
      }));
    }
    return results;
  }
  c10::IValue written_argument(const c10::AliasInfo& alias) const {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto* info = schema_.arguments()[i].alias_info();
      if (info != nullptr && *info == alias) return arguments_[i];
    }
    TORCH_CHECK(false, schema_.name(), " returns no argument that it writes");
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  Stack* stack_;
  std::string name_;
  std::vector<c10::IValue> arguments_;
  c10::Device device_{c10::kPrivateUse1, 0};
  Stream* stream_ = nullptr;
};

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { Call(op, stack).run(); }

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

c10::Device with_index(std::optional<c10::Device> device) {
  const c10::Device current = c10::impl::getDeviceGuardImpl(c10::kPrivateUse1)->getDevice();
  return device.has_value() && device->has_index() ? *device : current;
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(with_index(device));
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::kPrivateUse1), kKeys, at::dtype_or_default(dtype),
                                   format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(with_index(device));
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(c10::kPrivateUse1), kKeys,
                                           at::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, self.storage_offset());
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) { return at::native::view(self, sizes); }
at::Tensor view_as_real(const at::Tensor& self) { return at::native::view_as_real(self); }
at::Tensor view_as_complex(const at::Tensor& self) { return at::native::view_as_complex(self); }

void grow_storage(const c10::Storage& storage, size_t bytes) {
  if (bytes > storage.nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  const auto bytes = at::detail::computeStorageNbytesContiguous(sizes, self.element_size(),
                                                                static_cast<size_t>(self.storage_offset()));
  if (c10::multiply_integers(sizes) > 0) grow_storage(self.storage(), bytes);
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, c10::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (strides.empty() && !sizes.empty()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, strides);
  }
  return self;
}
at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {elements}, {1});
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}
at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(c10::kPrivateUse1), true),
                     0, {0}, {1});
}

bool is_pinned(const at::Tensor& tensor) { return tensor.is_cpu() && Memory::get().is_host(tensor.const_data_ptr()); }

// Copies wait as CUDA's do: pageable memory is read before the call returns and is written before it returns; only a
// non-blocking copy from or to page-locked memory, or within the device, comes later.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const Guard guard;
  const at::Tensor& there = to.is_privateuseone() ? to : from;
  Stream* stream = current_stream(there.device().index());
  const auto on_cpu = [](const at::Tensor& tensor) { return tensor.is_privateuseone() ? as_cpu(tensor) : tensor; };
  TORCH_CHECK(at::is_expandable_to(from.sizes(), to.sizes()), "can't copy sizes ", from.sizes(), " to ", to.sizes());
  if (to.numel() == 0) return to;
  const bool in_device = from.is_privateuseone() && to.is_privateuseone();
  const bool pinned = is_pinned(from) || is_pinned(to);
  const bool reads_pageable = from.is_cpu() && !pinned;
  const auto enqueue = [&](const at::Tensor& source) {
    Streams::get().enqueue(stream, [to_cpu = on_cpu(to).detach(), source] {
      const Guard inner;
      to_cpu.copy_(source);
    });
  };
  enqueue(reads_pageable ? from.clone() : on_cpu(from).detach());
  if (in_device || (non_blocking && (pinned || reads_pageable))) return to;
  if (to.is_cpu() || pinned) {
    wait_for(stream, "copy");
  } else {
    note_synchronisation("copy of pageable memory");  // what it reads is taken already: the rest may come later still
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const Guard guard;
  Stream* stream = current_stream(self.device().index());
  auto value = std::make_shared<at::Scalar>();
  Streams::get().enqueue(stream, [value, self_cpu = as_cpu(self)] {
    const Guard inner;
    *value = at::_local_scalar_dense(self_cpu);
  });
  wait_for(stream, "item");
  return *value;
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  c10::impl::getDeviceGuardImpl(c10::kPrivateUse1)->recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

// Attention takes the CPU's kernel where the CPU would.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool causal,
                         std::optional<double> scale, bool enable_gqa) {
  const int64_t chosen = at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, enable_gqa);
  const bool flash = chosen == static_cast<int64_t>(at::SDPBackend::flash_attention);
  return static_cast<int64_t>(flash ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

using AttentionResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                                   at::Tensor, at::Tensor>;
AttentionResult attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& mask, double dropout, bool causal, bool,
                          std::optional<double> scale) {
  auto [output, log_sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, mask, scale);
  return {output, log_sums, {}, {}, query.size(2), key.size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& mask, std::array<bool, 4>, const at::Tensor& output, const at::Tensor& log_sums,
    const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&,
    const at::Tensor&, std::optional<double> scale) {
  const auto given_mask = mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt;
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, query, key, value, output, log_sums, dropout, causal, given_mask, scale);
  return {dq, dk, dv, {}};
}

std::set<std::string> register_own_kernels(torch::Library& library) {
  std::set<std::string> names;
  const auto add = [&](const char* name, auto&& function) {
    library.impl(name, std::forward<decltype(function)>(function));
    names.insert(name);
  };
  add("empty.memory_format", TORCH_FN(empty));
  add("empty_strided", TORCH_FN(empty_strided));
  add("as_strided", TORCH_FN(as_strided));
  add("_reshape_alias", TORCH_FN(reshape_alias));
  add("view", TORCH_FN(view));
  add("view_as_real", TORCH_FN(view_as_real));
  add("view_as_complex", TORCH_FN(view_as_complex));
  add("resize_", TORCH_FN(resize));
  add("set_.source_Storage", TORCH_FN(set_whole_storage));
  add("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  add("set_.source_Tensor", TORCH_FN(set_tensor));
  add("set_", TORCH_FN(set_nothing));
  add("_copy_from", TORCH_FN(copy_from));
  add("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  add("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  add("record_stream", TORCH_FN(record_stream));
  add("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  add("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
  return names;
}

}  // namespace

at::Tensor as_cpu(const at::Tensor& tensor) {
  const auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset);
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

void register_operations() {
  static torch::Library everything(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  everything.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  const std::set<std::string> own = register_own_kernels(library);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const std::string text = c10::toString(name).substr(6);
    if (!op.has_value() || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || own.count(text) != 0) continue;
    library.impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
  }
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
}

}  // namespace herd::later
