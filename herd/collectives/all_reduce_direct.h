// All-reduces in symmetric memory of one host: rank r reduces part r straight out of its peers' inputs. There are n
// ranks and S message bytes; bytes sent are those read from or written to a peer's memory.
//   direct_pull  reduces into its own output, then copies the other parts from its peers' outputs.
//                Three signals per peer (ready, reduced, copied).  Sent per rank 2(n-1)/n * S bytes, all of it read.
//                Good while the data fits the cache.
//   direct_push  reduces into all n outputs in one pass.
//                Two signals per peer (ready, done).  Sent per rank 2(n-1)/n * S: half read, half written.
//                Good beyond the cache, where stores can bypass it.
//   Order: every part is summed over ranks 0, 1, .., n-1.  Extra memory: none.
// Source: the reduce-scatter and all-gather of Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1, with loads and
// stores in place of messages.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_direct_pull(const CollectiveRequest& request);
Schedule all_reduce_direct_push(const CollectiveRequest& request);

}  // namespace herd
