// Naive all-reduce: every rank sends all it has to every other and adds everything up itself (n ranks, S message
// bytes).
//   Steps 1.  Sent per rank (n-1) * S bytes, by all n(n-1) * S.  Scratch: (n-1) * S.
//   Order: ranks 0, 1, .., n-1.   For the shortest messages: one latency.
// Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_naive(const CollectiveRequest& request);

}  // namespace herd
