// Lanes of a device (lane.h). A job enqueues work on the lane's stream, and its event is the device's: reached once
// that work is done, and with it what the job has started elsewhere. Before a job, the stream is made to wait for the
// events before it, and the thread waits only where such an event is the host's.
//   device_inline_lane   the calling thread, on the stream that is current when the lane is made   (compute)
//   device_thread_lane   one sleeping thread with a queue and a stream of its own                  (copies,
//   collectives)
// Threads: as lane.h.
#pragma once

#include <c10/core/Device.h>

#include "herd/runtime/lane.h"

namespace herd::runtime {

std::unique_ptr<Lane> device_inline_lane(c10::Device device);
std::unique_ptr<Lane> device_thread_lane(const std::string& name, c10::Device device);

}  // namespace herd::runtime
