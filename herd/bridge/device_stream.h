// Devices and streams of torch, through c10's guards that serve every kind of device: no header of CUDA is needed.
// Threads: a current stream belongs to its thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <string>

#include "herd/base/buffer.h"
#include "herd/kernels/device_kernels.h"

namespace herd {

// Returns herd's name of a device. Throws kBadConfig for one that herd has no driver for.
Device to_device(c10::Device device);
// Returns the stream on which this thread's operations of torch run; null on the CPU.
StreamHandle current_stream(c10::Device device);
// Returns the handle of a stream of torch.
StreamHandle handle_of(const c10::Stream& stream);
// Return the kernels of the device that holds a tensor, and the stream of this thread that they are enqueued on.
kernels::DeviceKernels& kernels_of(const at::Tensor& tensor);
kernels::OnStream on_stream(const at::Tensor& tensor);
void synchronize(c10::Device device);  // returns when the device has done all that is enqueued
// Returns the kind that device.kind = "auto" stands for: "cuda" where herd and torch find a GPU, else "cpu".
std::string found_device_kind();
// Loads what torch needs for a device, before torch is used for anything else, and returns the device of the host's
// rank `index`, which take them in turn. kind is a value of device.kind but "auto". Throws kBadConfig where there is
// none, with the reason and the fix.
c10::Device open_device(const std::string& kind, int index);

}  // namespace herd
