// All-to-all: rank r gets what every rank has for it, in rank order. Each of n ranks has S bytes of input: a block of
// S/n bytes for each rank, or of the sizes in request.counts.
//   pairwise     n-1 steps; in step i a rank sends its block to the rank i after it and receives one from the rank i
//                before it: (n-1)/n * S bytes sent.  Any transport.  Scratch: S in place, else none.
//   bruck        ceil(log2 n) rounds; in round k the blocks whose remaining distance has bit k set move 2^k ranks on,
//                packed into one message: up to S/2 * ceil(log2 n) bytes sent. For short blocks.  Any transport.
//                Scratch: twice the bytes sent.
//   direct_pull  symmetric memory: copies each block out of its owner's input. Two signals per peer (ready, copied);
//                (n-1)/n * S bytes read from peers. Not in place.
//   staged       ordinary memory on one host: pieces of all blocks through two stage slots, one signal per peer and
//                piece; (n-1)/n * S bytes read from peers.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521 (pairwise); Bruck, Ho, Kipnis, Upfal &
// Weathersby 1997, doi:10.1109/71.642949 (bruck).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_to_all_pairwise(const CollectiveRequest& request);
Schedule all_to_all_bruck(const CollectiveRequest& request);
Schedule all_to_all_direct_pull(const CollectiveRequest& request);
Schedule all_to_all_staged(const CollectiveRequest& request);

}  // namespace herd
