// Saves a torch module of a program's own and its optimizer, and loads them again with any number of ranks.
//
//   herd::save_module("checkpoints", *net, &optimizer, comm, {.step = step});
//   if (auto last = herd::load_module("checkpoints", *net, &optimizer, comm)) step = last->step;
//
// Every rank holds the same module, as under DistributedDataParallel, and writes its share of each tensor. Parameters
// and buffers have their names in the module. States of a parameter w are "w.exp_avg" and the like; torch's SGD, Adam,
// AdamW, Adagrad and RMSprop have them. Options of the optimizer, such as its rate, stay the program's. Folder and
// guarantees: herd/storage/checkpoint_writer.h; `herd inspect` and `herd convert` read it.
// Threads: one at a time, which may not train meanwhile.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <filesystem>
#include <optional>

#include "herd/checkpoint/saver.h"
#include "herd/comm/communicator.h"

namespace herd {

// Returns the checkpoint's folder below `root`, once it is durable. `optimizer` may be null. Keeps the newest `keep`
// checkpoints below `root`. Collective. Throws kBadConfig for an optimizer of another kind, or a parameter of it that
// the module does not have; kStorage, on all ranks, where a file can't be written.
std::filesystem::path save_module(const std::filesystem::path& root, const torch::nn::Module& module,
                                  torch::optim::Optimizer* optimizer, Communicator& comm, CheckpointState state = {},
                                  int keep = 2);

// Fills module and optimizer, in place, from the newest whole checkpoint below `root`, and returns what was saved with
// it; nothing where there is none, and then nothing has changed. Without an `optimizer` its states are passed over.
// Collective. Throws kBadConfig, before anything is touched, where names or shapes are not those of the module, and for
// an optimizer of another kind; kCorruptFile for bytes that are not those that were written.
std::optional<CheckpointState> load_module(const std::filesystem::path& root, torch::nn::Module& module,
                                           torch::optim::Optimizer* optimizer, Communicator& comm);

}  // namespace herd
