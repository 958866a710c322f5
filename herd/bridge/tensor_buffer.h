// Lets collectives take tensors, as herd::Buffer.   Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "herd/base/buffer.h"

namespace herd {

// Returns the tensor's elements as they lie in memory; the buffer's keep_alive holds its storage. Throws kBadConfig for
// a tensor that is not one dense piece of memory, or whose element type has no DType.
Buffer to_buffer(const at::Tensor& tensor, BufferTag);

DType dtype_of(at::ScalarType type);         // throws kBadConfig with a type that has no DType
at::ScalarType scalar_type_of(DType dtype);  // returns torch's type for it

}  // namespace herd
