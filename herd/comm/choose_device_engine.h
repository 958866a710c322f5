// Chooses how a group's operations on device memory move their bytes, and opens what they need. Threads: the group's
// calling thread.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/comm/group_state.h"

namespace herd::comm {

// Collective. All ranks get the same engine. Throws kBadConfig on all of them where `asked` can't be had.
DeviceEngineChoice choose_device_engine(Communicator& comm, GroupState& group, Device device, DeviceEngine asked);
// Takes arenas of this size, for tests. Collective; throws kBadConfig where there are none.
void use_small_arenas(Communicator& comm, Device device, int64_t half_bytes);

}  // namespace herd::comm
