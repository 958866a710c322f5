// The tensors of a run as checkpoints name them: parameter "w", and per optimizer state "w.<state>".
#pragma once

#include <set>
#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

// Views of the flat memory, in the order of groups and parameters. What is whole: whole tensors. What is cut: this
// rank's elements of each parameter; parameters of which it has none are left out.
// Of what this rank updates: all ranks of the shard axis together have every element once.
std::vector<NamedTensor> own_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);
// Of everything that must be read before training goes on: weights as far as this rank keeps them, and its states.
std::vector<NamedTensor> kept_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);
// Names of all tensors of the run, also of those that this rank has nothing of.
std::set<std::string> tensor_names(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);

}  // namespace herd::train
