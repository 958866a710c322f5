// Circulant all-reduce: a circulant reduce-scatter, then a circulant all-gather, for any n (S message bytes).
//   Steps 2*ceil(log2 n).  Sent per rank 2(n-1)/n * S bytes.  Extra memory: none.
// Source: Traff 2025, doi:10.34726/10760.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_circulant(const CollectiveRequest& request);

}  // namespace herd
