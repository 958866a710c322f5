// Ring all-reduce: a ring reduce-scatter, then a ring all-gather (n ranks, S message bytes).
//   Steps 2(n-1).  Sent per rank 2(n-1)/n * S bytes.  Extra memory: none.
//   Order: part c is summed over ranks c+1, c+2, .., c (mod n), so every run gives the same bits.
// Source: Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_ring(const CollectiveRequest& request);

}  // namespace herd
