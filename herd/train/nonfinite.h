// Finds where a NaN or an infinity came from, after a step met one: the step is run again on this rank, block by block,
// on the same weights and samples (random numbers are keyed, so it repeats), looking at every output and gradient.
#pragma once

#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/runtime/model_bindings.h"

namespace herd::train {

// "output of blocks.3, micro-batch 1" or "gradient of blocks.3 ..."; empty where everything on this rank is finite.
// Overwrites the gradients.
std::string find_nonfinite(const runtime::Chain& chain, const runtime::StepInput& input, uint64_t seed, int64_t step);

// The same where weights are shards, so that running a block again would need all ranks: "weights of h.3" or "gradient
// of h.3", the first of this rank's shards that is not finite. Gradients are those of the step, reduced.
std::string find_nonfinite_shard(const runtime::FlatParameters& parameters);

// What every rank found, in one text: "rank 1: output of blocks.3, micro-batch 0". Collective.
std::string gather_findings(const std::string& mine, Communicator& comm);

}  // namespace herd::train
