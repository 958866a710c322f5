// Makes of PyTorch's tensors the dense memory that herd's collectives use. A tensor that is not contiguous is copied in
// before an operation and out after it. Copies on a device are enqueued on the current stream. Threads: pure, but for
// that stream, which belongs to its thread.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "herd/base/buffer.h"

namespace herd::pytorch {

using Tensors = std::vector<at::Tensor>;

// Returns herd's name of the device that holds a tensor. Throws kBadConfig where herd has no driver for it.
Device device_with_driver(const at::Tensor& tensor);

// Returns the memory of a contiguous tensor; on a device, with the current stream. Complex numbers are pairs. What herd
// has no type for is bytes where `reduces` is false, else it throws kBadConfig. The caller keeps the tensor alive.
Buffer buffer_of(const at::Tensor& contiguous, bool reduces = false);

// Returns the tensor if it is contiguous, else a contiguous copy. Throws kBadConfig for one that is not dense, and as
// device_with_driver() does.
at::Tensor input_of(const at::Tensor& tensor);
// Returns the tensor if it is contiguous, else memory for its elements. `makes_real`: a contiguous one on
// the CPU gets its pages here, all at once, as pays where the caller waits for the operation anyway.
at::Tensor output_of(const at::Tensor& tensor, bool makes_real = false);

// Returns one flat tensor with the elements of all parts, in order: a view where they follow each other in memory, else
// a copy.
at::Tensor flat_input(const Tensors& parts);
// Returns a view as flat_input() does, else memory for the elements of all parts.
at::Tensor flat_output(const Tensors& parts);
// Copies the elements of `flat` to the parts, unless they are the same memory.
void copy_out(const at::Tensor& flat, const Tensors& parts);

}  // namespace herd::pytorch
