// at::Tensor as herd::Buffer, so that collectives take tensors.
// Throws kBadConfig for a tensor that is not one dense piece of memory, or whose dtype herd does not move.
#pragma once

#include <ATen/core/Tensor.h>

#include "herd/base/buffer.h"

namespace herd {

Buffer to_buffer(const at::Tensor& tensor, BufferTag);  // keep_alive holds the tensor's storage

DType dtype_of(at::ScalarType type);  // throws kBadConfig, naming the type
at::ScalarType scalar_type_of(DType dtype);

}  // namespace herd
