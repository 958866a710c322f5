// Reduce: root gets the sum of all inputs (n ranks, S message bytes). Other ranks' memory is left as it was.
//   binomial     ceil(log2 n) rounds up a binomial tree; every rank but root sends S bytes once.  Any transport.
//                Scratch: S on inner ranks.  Order: along the tree, own + children at distance 1, 2, 4, ..
//   direct_push  symmetric memory: rank r reduces part r out of all inputs and writes it to root's output. Two signals
//                per peer (ready, done); (n-1)/n * S bytes read from peers, S/n written to root (none by root).
//                Order: ranks 0, 1, .., n-1.
//   staged       ordinary memory on one host: pieces through two buffers in each rank's stage memory; root reads
//                (n-1) * S bytes.
//                Order: ranks 0, 1, .., n-1.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, section 4.5 (binomial).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule reduce_binomial(const CollectiveRequest& request);
Schedule reduce_direct_push(const CollectiveRequest& request);
Schedule reduce_staged(const CollectiveRequest& request);

}  // namespace herd
