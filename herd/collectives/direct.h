// Defines what the direct algorithms share: who the peers are, in the order that spreads the load, and the sources of a
// sum. Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/builder.h"

namespace herd {

// self+1, self+2, .. (mod n): no two ranks start with the same peer.
std::vector<Rank> peers_of(const Builder& builder);

// The inputs of ranks 0, 1, .., n-1 at `range`: what a direct reduction sums, in this order.
std::vector<Slice> inputs_of_all(const Builder& builder, Range range);

}  // namespace herd
