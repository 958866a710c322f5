// Turns a send or a receive of the caller's memory into a pending operation.
// Threads: pure.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/comm/group_state.h"
#include "herd/comm/pending_op.h"

namespace herd::comm {

// Fills a fresh operation. `peer` may be kAnySource for a receive. Throws kBadConfig for a buffer or rank that can't
// be.
void fill_transfer(PendingOp& pending, GroupState& group, PendingOpKind kind, const Buffer& x, Rank peer, int tag,
                   const OpOptions& options);

// On the calling thread, until the bytes are sent or have come. Throws the group's error.
void send_now(GroupState& group, const Buffer& x, Rank to, int tag, const OpOptions& options);
void receive_now(GroupState& group, const Buffer& x, Rank from, int tag, const OpOptions& options);

}  // namespace herd::comm
