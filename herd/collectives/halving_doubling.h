// Recursive halving and recursive doubling, as building blocks (n ranks, p = the largest power of two <= n; places of
// folded_places.h). Where n is no power of two, an idle rank hands its input to its partner in halving(). The caller
// sends it the result.
//   halving   log2 p rounds: who holds the sums of a range of places sends one half to a peer and adds the other;
//             (p-1)/p of the message is sent.
//   doubling  log2 p rounds back: who holds a range of places exchanges it with the rank that holds the neighbouring
//             range.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, sections 4.1 to 4.5.   Threads: pure.
#pragma once

#include <functional>

#include "herd/collectives/folded_places.h"

namespace herd {

// Maps a range of the message to the slice that holds it on this rank.
using KeptAt = std::function<Slice(Range)>;

// Adds up the inputs, and keeps sums of some of the ranks at partial(..). The rank of place k ends with the complete
// sum of parts_of(k, k+1) at result(..), idle ranks with nothing. REQUIRES num_ranks > 1.
void halving(Builder& builder, const FoldedPlaces& places, const KeptAt& partial, const KeptAt& result);

// Starts with parts_of(k, k+1) in the output of place k's rank, and ends with the whole message in each of these
// outputs. Idle ranks do nothing.
void doubling(Builder& builder, const FoldedPlaces& places);

}  // namespace herd
