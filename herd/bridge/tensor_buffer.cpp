#include "herd/bridge/tensor_buffer.h"

#include <sstream>
#include <vector>

#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"

namespace herd {

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kChar:
      return DType::kI8;
    case at::kByte:
      return DType::kU8;
    case at::kInt:
      return DType::kI32;
    case at::kLong:
      return DType::kI64;
    case at::kBool:
      return DType::kBool;
    case at::kShort:
      return DType::kI16;
    case at::kUInt16:
      return DType::kU16;
    case at::kUInt32:
      return DType::kU32;
    case at::kUInt64:
      return DType::kU64;
    default:
      throw Error(Code::kBadConfig,
                  std::string("tensors of type ") + c10::toString(type) + " can't take part in collectives");
  }
}

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI8:
      return at::kChar;
    case DType::kU8:
      return at::kByte;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kBool:
      return at::kBool;
    case DType::kI16:
      return at::kShort;
    case DType::kU16:
      return at::kUInt16;
    case DType::kU32:
      return at::kUInt32;
    case DType::kU64:
      return at::kUInt64;
  }
  throw Error(Code::kBug, "unknown dtype");
}

Buffer to_buffer(const at::Tensor& tensor, BufferTag) {
  const auto refuse = [](const std::string& what) {
    throw Error(Code::kBadConfig,
                "a collective can't take " + what + "\n  fix: make it an ordinary dense tensor first");
  };
  if (!tensor.defined()) refuse("a tensor that is not defined");
  if (tensor.layout() != at::kStrided) refuse("a sparse tensor");
  if (!tensor.is_cpu() && !tensor.is_cuda() && !tensor.is_privateuseone())
    refuse("a tensor on device " + tensor.device().str());
  if (tensor.is_neg() || tensor.is_conj()) refuse("a tensor whose negation or conjugation is still to be done");
  if (!tensor.is_non_overlapping_and_dense()) {
    std::ostringstream text;
    text << "a collective needs one dense piece of memory; this tensor has sizes " << tensor.sizes() << " and strides "
         << tensor.strides() << "\n  fix: pass tensor.contiguous() and copy the result back";
    throw Error(Code::kBadConfig, text.str());
  }
  Buffer buffer;
  buffer.dtype = dtype_of(tensor.scalar_type());
  if (!tensor.is_contiguous()) {
    buffer.layout = 1;  // a hash of the strides, with the prime of FNV-1
    for (const int64_t stride : tensor.strides())
      buffer.layout = buffer.layout * 0x100000001b3ull + static_cast<uint64_t>(stride);
  }
  buffer.count = tensor.numel();
  buffer.ptr = tensor.numel() == 0 ? nullptr : tensor.data_ptr();
  buffer.device = to_device(tensor.device());
  buffer.stream = current_stream(tensor.device());
  buffer.keep_alive = std::make_shared<at::Tensor>(tensor.detach());
  return buffer;
}

at::Tensor copy_of(const at::Tensor& x, BufferTag tag) {
  to_buffer(x, tag);  // throws where it is none of a collective's
  return x.detach().clone(at::MemoryFormat::Contiguous);
}

at::Tensor empty_like(const at::Tensor& x, int64_t count, BufferTag) {
  std::vector<int64_t> sizes = x.sizes().vec();
  if (sizes.empty()) sizes = {1};
  int64_t row = 1;
  for (size_t d = 1; d < sizes.size(); ++d) row *= sizes[d];
  if (row > 0 && count % row != 0) {
    std::ostringstream text;
    text << "a tensor of sizes " << x.sizes() << " has rows of " << row
         << " elements; this rank's part of the result has " << count
         << ", no whole number of rows\n  fix: counts that are multiples of " << row
         << ", a first dimension that the ranks divide, or the form with an output of your own";
    throw Error(Code::kBadConfig, text.str());
  }
  if (row > 0) sizes[0] = count / row;
  return at::empty(sizes, x.options().requires_grad(false).memory_format(at::MemoryFormat::Contiguous));
}

}  // namespace herd
