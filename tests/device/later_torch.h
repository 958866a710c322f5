// What torch asks of the device "later": its allocator, guard, hooks and operations.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tests/device/later_streams.h"

namespace herd::later {

// Returns the stream on which this thread's operations run.
Stream* current_stream(c10::DeviceIndex device);
Stream* stream_of(const c10::Stream& stream);

void register_guard();
void register_operations();

// Returns the same elements as a tensor of the CPU, which only jobs may touch.
at::Tensor as_cpu(const at::Tensor& tensor);

}  // namespace herd::later
