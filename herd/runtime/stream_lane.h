// Lanes of an accelerator: each is one stream, each event one of the device's. The work goes through c10's
// device-generic guards, so this compiles against every build of libtorch and runs where the device is.
// A job is called on the submitting thread at once, with the lane's stream current; it only enqueues kernels.
// Source: c10/core/impl/DeviceGuardImplInterface.h.   Threads: as lane.h.
#pragma once

#include <c10/core/Device.h>

#include "herd/runtime/lane.h"

namespace herd::runtime {

// Throws kBadConfig where this build of libtorch has no such device.
std::unique_ptr<Lane> stream_lane(c10::Device device);

}  // namespace herd::runtime
