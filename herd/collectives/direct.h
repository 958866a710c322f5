// Defines what the direct algorithms share: the order of peers that spreads the load, and the sources of a sum.
// Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/builder.h"

namespace herd {

// Returns self+1, self+2, .. (mod n), so that no two ranks start with the same peer.
std::vector<Rank> peers_of(const Builder& builder);

// Returns `range` of the inputs of ranks 0, 1, .., n-1; a direct reduction sums them in this order.
std::vector<Slice> inputs_of_all(const Builder& builder, Range range);

}  // namespace herd
