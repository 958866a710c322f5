// Broadcast: every rank gets root's input (n ranks, S message bytes).
//   binomial     ceil(log2 n) rounds: who has the message passes it on, so its holders double. Root sends
//                ceil(log2 n) * S bytes, all ranks together (n-1) * S.  Any transport.
//   scatter_all_gather  the parts go down a binomial tree, then around a ring: ceil(log2 n) + n-1 steps, root sends
//                less than 2S bytes. For long messages.  Any transport.
//   chain        segments travel from rank to rank: n-2 steps more than there are segments (segments.h); S bytes sent
//                by all but the last. For the longest messages.  Any transport.
//   direct_pull  symmetric memory: every rank copies straight out of root's memory. S bytes read from root per rank;
//                two signals between root and each rank (ready, copied).
//   direct_push  symmetric memory: rank r copies part r out of root's memory into everybody's in one pass, so that all
//                ranks move bytes. Two signals between each two ranks (ready, done). All ranks together move
//                (n-1) * S bytes in place, (n-1)/n * S more out of place.
//   staged       ordinary memory on one host: pieces through two slots of root's stage. S bytes read from root per
//                rank. Every rank signals root before the first piece, so a rank that never calls the broadcast keeps
//                all others waiting.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, section 4.4 (binomial; scatter and
// all-gather, after van de Geijn).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule broadcast_binomial(const CollectiveRequest& request);
Schedule broadcast_scatter_all_gather(const CollectiveRequest& request);
Schedule broadcast_chain(const CollectiveRequest& request);
Schedule broadcast_direct_pull(const CollectiveRequest& request);
Schedule broadcast_direct_push(const CollectiveRequest& request);
Schedule broadcast_staged(const CollectiveRequest& request);

}  // namespace herd
