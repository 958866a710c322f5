// The tensors of a run as checkpoints name them: parameter "w", and per optimizer state "w.<state>".
#pragma once

#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

// Views of the flat memory, whole tensors, in the order of groups and parameters.
std::vector<NamedTensor> weight_tensors(const runtime::FlatParameters& parameters);
std::vector<NamedTensor> state_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);

}  // namespace herd::train
