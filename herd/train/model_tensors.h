// The tensors of a run as checkpoints name them: parameter "w", and per optimizer state "w.<state>".
#pragma once

#include <set>
#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/models/model.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/flat_parameters.h"

namespace herd::train {

// What this rank updates, as views of the flat memory, in the order of groups and parameters: all ranks of the shard
// axis together have every element once. Of a whole group, whole tensors; of one that is cut, this rank's elements of
// each parameter, without those of which it has none. Weights are the fp32 ones, which a checkpoint of any precision
// holds; frozen ones, which have no states, those that the run computes with.
std::vector<NamedTensor> own_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);
// Of them what this rank saves: all ranks together have every element once.
std::vector<NamedTensor> saved_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);
// The weights among own_tensors().
std::vector<NamedTensor> own_weights(const runtime::FlatParameters& parameters);
// The weights of a model outside a run, in memory of their own that this attaches.
std::vector<NamedTensor> whole_weights(const models::Model& model);
// Names of all tensors of the run, also of those that this rank has nothing of.
std::set<std::string> tensor_names(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);

}  // namespace herd::train
