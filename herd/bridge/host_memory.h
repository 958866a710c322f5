// Tensors in the host's memory, beside the device's: on CPU, where both are one, memory past torch's allocator, so that
// the device's budget does not count it. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd {

// Zeros, freed with the last tensor. Throws kStorage with the bytes wanted where the system has none.
at::Tensor host_zeros(int64_t elements, at::ScalarType type);

}  // namespace herd
