// Gather: root gets all inputs in rank order (n ranks, S bytes of output; an input has S/n, or counts[rank] elements).
//   linear       every rank sends its input to root: (n-1)/n * S bytes arrive there in n-1 messages.  Any transport.
//   binomial     ceil(log2 n) rounds up a binomial tree. A rank sends the parts of its subtree, in two messages where
//                they pass over rank n-1 to 0.  Any transport.  Scratch: the parts of the subtree on inner ranks.
//   direct_push  symmetric memory: every rank writes its part into root's output. Two signals between root and each
//                rank (ready, done); S/n bytes written by each.
//   staged       ordinary memory on one host: pieces through two buffers in each rank's stage memory. Root reads
//                (n-1)/n * S bytes. It answers all ranks once it has a piece of each, so every rank hears from every
//                other through root.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521 (binomial).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule gather_linear(const CollectiveRequest& request);
Schedule gather_binomial(const CollectiveRequest& request);
Schedule gather_direct_push(const CollectiveRequest& request);
Schedule gather_staged(const CollectiveRequest& request);

}  // namespace herd
