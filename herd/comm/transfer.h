// A send or receive of the caller's memory, as a task.
// Threads: pure.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/comm/group_state.h"
#include "herd/comm/task.h"

namespace herd::comm {

// Fills a fresh task. `peer` may be kAnySource for a receive. Throws kBadConfig for a buffer or rank that can't be.
void fill_transfer(Task& task, GroupState& group, TaskKind kind, const Buffer& x, Rank peer, int tag,
                   const OpOptions& options);

// On the calling thread, until the bytes are sent or have come. Throws the group's error.
void send_now(GroupState& group, const Buffer& x, Rank to, int tag, const OpOptions& options);
void receive_now(GroupState& group, const Buffer& x, Rank from, int tag, const OpOptions& options);

}  // namespace herd::comm
