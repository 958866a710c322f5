// Finds where a NaN or an infinity came from, after a step met one. All ranks run the step's program again, on the same
// weights and samples, and look at every output and gradient. Random numbers are keyed, so the step repeats. Threads:
// one at a time.
#pragma once

#include <string>

#include "herd/comm/communicator.h"
#include "herd/program/program.h"
#include "herd/runtime/model_bindings.h"

namespace herd::train {

// Returns what each rank met first, in one text: "rank 1: output of h.3, micro-batch 0; rank 2: weights of h.3".
// Returns empty where everything was finite this time. It overwrites gradients; weights and states stay. `options` and
// `step_number` are those of the step. Collective. REQUIRES no step in flight.
std::string find_nonfinite(const program::Program& step, const runtime::Chain& chain,
                           runtime::FlatParameters& parameters, const runtime::AxisGroups& groups,
                           runtime::ModelBindings::Options options, runtime::StepInput input, int64_t step_number,
                           Communicator& comm);

}  // namespace herd::train
