// Takes the optimizer's step on the part of each group that this rank updates. Threads: one at a time.
#pragma once

#include <memory>

#include "herd/optim/learning_rate.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/model_bindings.h"

namespace herd::runtime {

// Returns the function that updates one group (GroupUpdate, model_bindings.h). It decays parameters whose spec says so.
// Borrows `parameters` and `optimizer`.
GroupUpdate parameter_update(FlatParameters& parameters, const optim::Optimizer& optimizer, optim::LearningRate rate);

}  // namespace herd::runtime
