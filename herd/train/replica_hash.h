// Checks whether weights that several ranks keep whole still have the same bits on all of them. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

inline constexpr int64_t kNoHash = INT64_MIN;

// Returns one hash (kernels/hash.h) per group of the model; kNoHash for groups that this rank does not keep whole.
std::vector<int64_t> weight_hashes(const runtime::FlatParameters& parameters);

// Says which ranks differ from the majority, per group: "rank 2 holds other weights than ranks 0, 1, 3 in blocks.3";
// empty where all agree. On a tie the hash of the smallest rank counts as the majority. hashes_RG has the hashes of G
// groups on R ranks, rank by rank. places_RG says which part of a shared group each rank has; empty = none is shared.
// Pure.
std::string describe_differences(const std::vector<int64_t>& hashes_RG, int ranks,
                                 const std::vector<std::string>& groups, const std::vector<int64_t>& places_RG = {});

// Throws kBug with describe_differences() and the number of the step. It compares nothing where no two ranks keep the
// same. Collective.
void check_replicas(const runtime::FlatParameters& parameters, Communicator& comm, int64_t step);

// Does so before the first step of a chain, and throws kBadConfig: its factories may draw what each process draws
// otherwise. Collective.
void check_initial_replicas(const runtime::FlatParameters& parameters, Communicator& comm);

}  // namespace herd::train
