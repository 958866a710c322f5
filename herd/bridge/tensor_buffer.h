// Lets collectives take tensors, as herd::Buffer.   Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "herd/base/buffer.h"

namespace herd {

// Returns the tensor's elements as they lie in memory; the buffer's keep_alive holds its storage. Throws kBadConfig for
// a tensor that is not one dense piece of memory, or whose element type has no DType.
Buffer to_buffer(const at::Tensor& tensor, BufferTag);

// Return new contiguous tensors, without gradient: the elements of x, or `count` elements of x's type in its shape but
// for the first dimension. A scalar counts as one row. Throws kBadConfig where `count` is no whole number of rows.
at::Tensor copy_of(const at::Tensor& x, BufferTag);
at::Tensor empty_like(const at::Tensor& x, int64_t count, BufferTag);

DType dtype_of(at::ScalarType type);         // throws kBadConfig with a type that has no DType
at::ScalarType scalar_type_of(DType dtype);  // returns torch's type for it

}  // namespace herd
