// What torch and herd ask of the device "later": its allocator, guard, hooks and operations; kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "herd/base/buffer.h"
#include "tests/device/later_streams.h"

namespace herd::later {

// Returns the stream on which this thread's operations run.
Stream* current_stream(c10::DeviceIndex device);
Stream* stream_of(const c10::Stream& stream);
Stream* stream_of_handle(int device, StreamHandle stream);  // as herd names streams

void register_guard();
void register_operations();
void register_kernels();

// Returns the same elements as a tensor of the CPU, which only jobs may touch.
at::Tensor as_cpu(const at::Tensor& tensor);

}  // namespace herd::later
