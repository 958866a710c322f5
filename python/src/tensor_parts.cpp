#include "tensor_parts.h"

#include <string>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/memory/populate.h"

namespace herd::pytorch {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Code::kBadConfig, "this operation of the backend \"herd\" can't take " + what);
}

void check_dense(const at::Tensor& tensor) {
  if (!tensor.defined()) refuse("a tensor that is not defined");
  if (tensor.layout() != at::kStrided) refuse("a sparse tensor");
  device_with_driver(tensor);
}

int64_t num_elements(const Tensors& parts) {
  int64_t count = 0;
  for (const auto& part : parts) count += part.numel();
  return count;
}

// Returns a flat view of all parts where they follow each other in one storage; undefined where they do not.
at::Tensor adjacent(const Tensors& parts) {
  const at::Tensor& first = parts.front();
  int64_t next = first.storage_offset();
  for (const auto& part : parts) {
    if (!part.is_contiguous() || part.is_conj() || part.is_neg()) return {};
    if (part.numel() == 0) continue;
    if (!part.is_alias_of(first) || part.storage_offset() != next || part.scalar_type() != first.scalar_type())
      return {};
    next += part.numel();
  }
  if (first.numel() == 0 && parts.size() > 1) return {};
  return first.as_strided({num_elements(parts)}, {1}, first.storage_offset());
}

}  // namespace

Device device_with_driver(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  try {
    const Device device = to_device(tensor.device());
    device_driver(device.kind);  // throws where there is none
    return device;
  } catch (const Error& error) {
    const std::string reason = error.message().substr(0, error.message().find('\n'));
    const std::string name = c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
    refuse("a tensor on " + tensor.device().str() +
           ": it takes those on the CPU and on devices that herd has a driver for, and " + reason +
           "\n  fix: tensor.cpu(), or another backend for the device: init_process_group(\"cpu:herd," + name + ":" +
           (tensor.is_cuda() ? "nccl" : "...") + "\")");
  }
}

Buffer buffer_of(const at::Tensor& contiguous, bool reduces) {
  Buffer buffer;
  if (!contiguous.is_cpu()) {
    buffer.device = device_with_driver(contiguous);
    buffer.stream = current_stream(contiguous.device());
  }
  buffer.ptr = contiguous.numel() == 0 ? nullptr : contiguous.data_ptr();
  buffer.count = contiguous.numel();
  const auto is = [&](DType dtype) {
    buffer.dtype = dtype;
    return buffer;
  };
  switch (contiguous.scalar_type()) {
    case at::kFloat:
      return is(DType::kF32);
    case at::kDouble:
      return is(DType::kF64);
    case at::kHalf:
      return is(DType::kF16);
    case at::kBFloat16:
      return is(DType::kBF16);
    case at::kChar:
      return is(DType::kI8);
    case at::kByte:
      return is(DType::kU8);
    case at::kShort:
      return is(DType::kI16);
    case at::kInt:
      return is(DType::kI32);
    case at::kLong:
      return is(DType::kI64);
    case at::kUInt16:
      return is(DType::kU16);
    case at::kUInt32:
      return is(DType::kU32);
    case at::kUInt64:
      return is(DType::kU64);
    case at::kBool:
      return is(DType::kBool);
    case at::kComplexFloat:
      buffer.count *= 2;
      return is(DType::kF32);
    case at::kComplexDouble:
      buffer.count *= 2;
      return is(DType::kF64);
    default:
      break;
  }
  if (reduces) {
    throw Error(Code::kBadConfig, std::string("tensors of type ") + c10::toString(contiguous.scalar_type()) +
                                      " can be moved but not reduced\n  fix: reduce them in bfloat16, half or float");
  }
  buffer.count *= static_cast<int64_t>(contiguous.element_size());
  return is(DType::kU8);
}

at::Tensor input_of(const at::Tensor& tensor) {
  check_dense(tensor);
  return tensor.resolve_conj().resolve_neg().contiguous();
}

at::Tensor output_of(const at::Tensor& tensor, bool makes_real) {
  check_dense(tensor);
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    if (makes_real && tensor.is_cpu()) populate_untouched(tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    return tensor;
  }
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor flat_input(const Tensors& parts) {
  for (const auto& part : parts) check_dense(part);
  if (at::Tensor view = adjacent(parts); view.defined()) return view;
  Tensors flat;
  for (const auto& part : parts) flat.push_back(part.reshape({-1}));
  return at::cat(flat);
}

at::Tensor flat_output(const Tensors& parts) {
  for (const auto& part : parts) check_dense(part);
  if (at::Tensor view = adjacent(parts); view.defined()) return view;
  return at::empty({num_elements(parts)}, parts.front().options());
}

void copy_out(const at::Tensor& flat, const Tensors& parts) {
  int64_t begin = 0;
  for (const auto& part : parts) {
    const int64_t count = part.numel();
    if (count > 0 && !flat.is_alias_of(part)) part.copy_(flat.reshape({-1}).narrow(0, begin, count).view(part.sizes()));
    begin += count;
  }
}

}  // namespace herd::pytorch
