// The kernels of device_kernels.h on the CPU. They run at once, in the calling thread, and pay no heed to the stream: a
// device of the tests enqueues them, and the kernels of other devices are compared with them.   Threads: any.
#pragma once

#include "herd/kernels/device_kernels.h"

namespace herd::kernels {

DeviceKernels& host_kernels();

}  // namespace herd::kernels
