// Whether the weights that every rank holds are still the same bits on all of them.
#pragma once

#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

// One hash (kernels/hash.h) per group whose weights this rank keeps whole.
std::vector<int64_t> weight_hashes(const runtime::FlatParameters& parameters);

// Who differs from the majority, per group; the smallest rank's hash decides between equals. hashes_RG: rank by rank.
// "rank 2 holds other weights than ranks 0, 1, 3 in blocks.3"; empty where all agree. Pure.
std::string describe_differences(const std::vector<int64_t>& hashes_RG, int ranks,
                                 const std::vector<std::string>& groups);

// Throws kBug with that text. Nothing to compare where each rank keeps a shard of its own. Collective: the same call on
// every rank.
void check_replicas(const runtime::FlatParameters& parameters, Communicator& comm, int64_t step);

}  // namespace herd::train
