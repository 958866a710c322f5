// Reduce-scatter: rank r gets part r of the sum of all inputs (n ranks, S bytes of input; an output has S/n).
//   ring         n-1 steps; (n-1)/n * S bytes sent per rank.  Any transport.  Scratch: two parts, none in place.
//                Order: part c is summed over ranks c+1, c+2, .., c (mod n).
//   halving      log2 n rounds for powers of two, (n-1)/n * S bytes sent; otherwise 2 steps more, in
//                which an idle rank and its partner (folded_places.h) send up to S + S/n bytes more.  Any transport.
//                Scratch: S/2 (S with an idle partner), none in place.  Order: an idle rank's input is added to its
//                partner's first, then partial sums of partners, the farthest partner first.
//   pairwise     n-1 steps; in step i a rank sends the part of the rank i after it: (n-1)/n * S bytes.  Any transport.
//                No scratch.  Order: part r is summed over ranks r, r-1, r-2, .. (mod n).
//   circulant    ceil(log2 n) rounds, (n-1)/n * S bytes sent.  Any transport.  Scratch: S/2, none in place.
//   direct_pull  symmetric memory: reduces part r straight out of all inputs. Two signals per peer (ready, read);
//                (n-1)/n * S bytes read from peers.  Order: ranks 0, 1, .., n-1.  There is no push form: peers' memory
//                has no room for n contributions.
//   staged       ordinary memory on one host: pieces through two stage slots, one signal per peer and piece;
//                (n-1)/n * S bytes read from peers.  Order: ranks 0, 1, .., n-1.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, section 4.2; circulant.h.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule reduce_scatter_ring(const CollectiveRequest& request);
Schedule reduce_scatter_halving(const CollectiveRequest& request);
Schedule reduce_scatter_pairwise(const CollectiveRequest& request);
Schedule reduce_scatter_circulant(const CollectiveRequest& request);
Schedule reduce_scatter_direct_pull(const CollectiveRequest& request);
Schedule reduce_scatter_staged(const CollectiveRequest& request);

}  // namespace herd
