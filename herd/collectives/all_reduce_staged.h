// All-reduce of ordinary memory on one host, through stage memory that peers map (n ranks, S message bytes).
//   Up to kOneShotBytes (staging.h): copy in, signal, wait, reduce from the input and peers' stages. One
//     synchronisation; (n-1) * S bytes read from peers; stage S. Each operation uses the other of two stage areas than
//     the one before. So no rank overwrites what a peer still reads, without a closing signal.
//   Beyond: pieces, pipelined three deep. Rank r reduces part r of a piece and publishes it in its stage; its peers
//     copy it from there. 2(n-1)/n * S bytes read from peers; two signals per peer and piece; stage 3(1 + 1/n) pieces.
//   Order: every element is summed over ranks 0, 1, .., n-1.
// Source: the one- and two-pass forms of shared-memory reduction, as in Jain et al. 2018, doi:10.1109/SC.2018.00032.
// Threads: pure.
#pragma once

#include "herd/collectives/request.h"

namespace herd {

Schedule all_reduce_staged(const CollectiveRequest& request);

}  // namespace herd
