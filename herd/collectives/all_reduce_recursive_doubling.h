// All-reduce by exchange over doubling distances (n ranks, S message bytes, p = the largest power of two <= n).
// Where n > p, n - p ranks are idle: each hands its input to a partner before, and gets the result from it after.
//   recursive_doubling  every rank exchanges all it has with another. Steps log2 p, and 2 more where n > p; log2 p
//                     * S bytes sent, S more by the idle ranks and their partners.
//                     Scratch: S bytes; 2S where p >= 4, which takes several rounds.
//                     Order: ((0+1)+(2+3))+.. on every rank: the operand that holds the lower ranks' sum comes first.
//   halving_doubling  Rabenseifner's: recursive halving, then recursive doubling. Steps 2*log2 p, and 2 more where n >
//                     p; 2(p-1)/p * S bytes sent, S more by the idle ranks and their partners. Parts are n-ths, so
//                     where n > p halves differ in size, and 2(p-1)/p * S is the mean over the p ranks.
//                     Extra memory: none.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, section 4.5; Rabenseifner 2004,
// doi:10.1007/978-3-540-24685-5_1.   Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_recursive_doubling(const CollectiveRequest& request);
Schedule all_reduce_halving_doubling(const CollectiveRequest& request);

}  // namespace herd
