// Recursive halving and recursive doubling, as building blocks (n ranks, p = the largest power of two <= n; places of
// folded_places.h). Where n is no power of two, an idle rank first hands its input over and last gets its result.
//   halving   log2 p rounds: who holds the sums of a range of places sends one half to a peer and adds the other;
//             (p-1)/p of the message is sent.
//   doubling  log2 p rounds back: who holds a range of places exchanges it for the neighbouring one.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521, sections 4.1 to 4.5.   Threads: pure.
#pragma once

#include <functional>

#include "herd/collectives/folded_places.h"

namespace herd {

// Where partial sums of a range of the message are kept, and where the last round puts them.
using KeptAt = std::function<Slice(Range)>;

// Adds up the inputs; the rank of place p ends with the complete sum of parts_of(p, p+1) at last(..), idle ranks with
// nothing. REQUIRES num_ranks > 1.
void halving(Builder& builder, const FoldedPlaces& places, const KeptAt& partial, const KeptAt& last);

// From parts_of(p, p+1) in the output of each place's rank to the whole message there. Idle ranks do nothing.
void doubling(Builder& builder, const FoldedPlaces& places);

}  // namespace herd
