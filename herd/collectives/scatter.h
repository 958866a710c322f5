// Scatter: rank r gets part r of root's input (n ranks, S bytes of input; an output has S/n, or what counts say).
//   linear       root sends each rank its part: (n-1)/n * S bytes in n-1 messages.  Any transport.
//   binomial     ceil(log2 n) rounds down a binomial tree; a rank receives the parts of its subtree (in two messages
//                where they pass over rank n-1 to 0).  Any transport.  Scratch: the parts of the subtree on inner
//                ranks.
//   direct_pull  symmetric memory: every rank copies its part out of root's input. Two signals between root and each
//                rank (ready, copied); S/n bytes read by each.
//   staged       ordinary memory on one host: pieces of all parts through two slots of root's stage (staging.h); S/n
//                bytes read by each rank. Ranks check in at root first, so each one hears from every other.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521 (binomial).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule scatter_linear(const CollectiveRequest& request);
Schedule scatter_binomial(const CollectiveRequest& request);
Schedule scatter_direct_pull(const CollectiveRequest& request);
Schedule scatter_staged(const CollectiveRequest& request);

}  // namespace herd
