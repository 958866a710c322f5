// Makes tensors in the host's memory, which the device's budget does not count. On CPU, where both are one memory, it
// bypasses torch's allocator.   Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace herd {

// Returns [elements] of zeros; their memory is freed with the last tensor on it. Where `device` is not the CPU, the
// memory is page-locked, so that copies between the two are asynchronous and fast. Throws kStorage with the bytes
// wanted where the system has too little.
at::Tensor host_zeros(int64_t elements, at::ScalarType type, at::Device device = at::kCPU);

}  // namespace herd
