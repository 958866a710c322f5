// Lets collectives take tensors, as herd::Buffer.   Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "herd/base/buffer.h"

namespace herd {

// Returns the tensor's elements as they lie in memory; the buffer's keep_alive holds its storage. Throws kBadConfig for
// a tensor that is not one dense piece of memory, or whose type herd does not move.
Buffer to_buffer(const at::Tensor& tensor, BufferTag);

DType dtype_of(at::ScalarType type);         // throws kBadConfig with the type where herd does not move it
at::ScalarType scalar_type_of(DType dtype);  // returns the type of torch for it

}  // namespace herd
