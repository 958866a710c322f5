// Turns a send or a receive of the caller's memory into a pending operation.
// Threads: pure.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/comm/group_state.h"
#include "herd/comm/pending_op.h"

namespace herd::comm {

// Fills a fresh operation. `peer` may be kAnySource for a receive. Throws kBadConfig for a buffer that check_buffer()
// or check_in_order() refuses, or a rank outside the group.
void fill_transfer(PendingOp& pending, GroupState& group, PendingOpKind kind, const Buffer& x, Rank peer, int tag,
                   const OpOptions& options);

// Run on the calling thread, until the bytes are sent or have come. Throw the group's error.
void send_now(GroupState& group, const Buffer& x, Rank to, int tag, const OpOptions& options);
void receive_now(GroupState& group, const Buffer& x, Rank from, int tag, const OpOptions& options);

}  // namespace herd::comm
