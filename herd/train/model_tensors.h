// Names the tensors of a run as checkpoints do: parameter "w", and per optimizer state "w.<state>". Threads: one at a
// time.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/optim/optimizer.h"
#include "herd/runtime/encoded_gradients.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/served_parameters.h"

namespace herd::train {

// Returns what this rank updates, as views of the flat memory, in the order of groups and parameters. All ranks of the
// shard axis together have every element once. A whole group gives whole tensors; a cut one gives this rank's elements
// of each parameter, if it has any. Weights are the fp32 ones, which a checkpoint of any precision holds. Frozen
// weights, which have no states, are those that the run computes with.
std::vector<NamedTensor> own_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);
// Returns the part of own_tensors() that this rank saves. Ranks with the same elements split them, so all ranks of the
// job together save every element once.
std::vector<NamedTensor> saved_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);
// Returns the weights among own_tensors().
std::vector<NamedTensor> own_weights(const runtime::FlatParameters& parameters);
// Returns the gradients that wait on the host for their update: of what this rank updates, or of the part that it
// saves.
std::vector<NamedTensor> own_waiting_gradients(const runtime::FlatParameters& parameters);
std::vector<NamedTensor> saved_waiting_gradients(const runtime::FlatParameters& parameters);
// Returns what this rank has lost by encoding gradients, each a tensor of its own (storage/residual_name.h).
std::vector<NamedTensor> residual_tensors(const runtime::EncodedGradients& encoded,
                                          const runtime::FlatParameters& parameters, int rank);
// Returns the weights that the server of this rank saves where servers alone save: those that it updates, and on the
// first one the frozen ones. Of dedicated servers, which save none, the first rank that trains saves all.
std::vector<NamedTensor> weights_of_server(const runtime::ServedParameters& served,
                                           const runtime::FlatParameters& parameters, bool first);
// Returns the optimizer's states that the server of this rank keeps.
std::vector<NamedTensor> served_tensors(const runtime::ServerShare& share, const optim::Optimizer& optimizer);
// Names all tensors of the run, also those of which this rank has nothing.
std::set<std::string> tensor_names(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer);

}  // namespace herd::train
