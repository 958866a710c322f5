// Writes what a failing operation says: who waits for whom, in which step, who is dead, who lags, whose program
// differs. Ranks are those of the job, whatever the group, since other groups throw the same words. Threads: under the
// engine's lock; reads only the board and the transport.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "herd/comm/group_state.h"

namespace herd::comm {

// Returns the first of the last operations up to `sequence` that this rank and the peer both show and that differ; 0 =
// none.
uint64_t first_difference(GroupState& group, Rank peer, uint64_t sequence);

// Returns: all_reduce #412 "grad.bucket3" (fp32 x 1000, sum, ring; train/loop.cpp:88)
std::string describe(const transport::OperationRecord& record);
// Returns: receive from rank 3, tag 7, fp32 x 1000 (train/loop.cpp:88)
std::string describe_transfer(const PendingOp& pending);

std::string timeout_report(GroupState& group, const PendingOp& pending, const std::vector<Rank>& awaited);
std::string device_timeout_report(GroupState& group, const PendingOp& pending);  // waits for its own device
std::string lost_report(GroupState& group, const PendingOp& pending, Rank peer);
std::string mismatch_report(GroupState& group, const PendingOp& pending, Rank peer);
std::string closing_report(GroupState& group, Rank peer, uint64_t sequence);  // reports on an operation that has ended
std::string transfer_mismatch_report(const GroupState& group, const PendingOp& pending);

}  // namespace herd::comm
