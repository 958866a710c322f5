// All-gather: every rank gets all inputs in rank order (n ranks, S bytes of output; an input has S/n).
//   ring         n-1 steps; (n-1)/n * S bytes sent per rank.  Any transport.
//   bruck        ceil(log2 n) rounds of one message each, (n-1)/n * S bytes sent.  Any transport.  Scratch: S.
//   recursive_doubling  log2 n rounds for powers of two, (n-1)/n * S bytes sent; 2 steps more otherwise, (n-1)/n * S
//                bytes more sent by a partner of an idle rank (see folded_places.h for idle ranks).  Any transport.
//   circulant    ceil(log2 n) rounds, (n-1)/n * S bytes sent, no scratch; a round is two messages where its parts pass
//                over rank n-1 to 0.  Any transport.
//   direct_pull  symmetric memory: reads each part out of its owner's input. Two signals per peer (ready, copied);
//                (n-1)/n * S bytes read from peers.
//   direct_push  symmetric memory: writes its part into all n outputs in one pass. Two signals per peer (ready, done);
//                (n-1)/n * S bytes written to peers.
//   staged       ordinary memory on one host: in pieces, through two slots of stage memory (staging.h); one signal per
//                peer and piece; (n-1)/n * S bytes read from peers.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, section 4.1 (ring, recursive doubling);
// Bruck, Ho, Kipnis, Upfal & Weathersby 1997, doi:10.1109/71.642949; circulant.h.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_gather_ring(const CollectiveRequest& request);
Schedule all_gather_bruck(const CollectiveRequest& request);
Schedule all_gather_recursive_doubling(const CollectiveRequest& request);
Schedule all_gather_circulant(const CollectiveRequest& request);
Schedule all_gather_direct_pull(const CollectiveRequest& request);
Schedule all_gather_direct_push(const CollectiveRequest& request);
Schedule all_gather_staged(const CollectiveRequest& request);

}  // namespace herd
