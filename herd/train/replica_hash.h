// Checks whether weights that several ranks keep whole are still the same bits on all of those.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

inline constexpr int64_t kNoHash = INT64_MIN;

// One hash (kernels/hash.h) per group of the model; kNoHash of those whose weights this rank does not keep whole.
std::vector<int64_t> weight_hashes(const runtime::FlatParameters& parameters);

// Who differs from the majority, per group; the smallest rank's hash decides between equals. hashes_RG: rank by rank.
// "rank 2 holds other weights than ranks 0, 1, 3 in blocks.3"; empty where all agree. places_RG: which part of a group
// that ranks share each has; empty = none is shared. Pure.
std::string describe_differences(const std::vector<int64_t>& hashes_RG, int ranks,
                                 const std::vector<std::string>& groups, const std::vector<int64_t>& places_RG = {});

// Throws kBug with that text. Nothing to compare where no two ranks keep the same. Collective: the same call on
// every rank.
void check_replicas(const runtime::FlatParameters& parameters, Communicator& comm, int64_t step);

}  // namespace herd::train
