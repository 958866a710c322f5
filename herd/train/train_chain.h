// Runs a program that trains a chain of own blocks (herd/chain): all that its main() needs.
//
//   int main(int argc, char** argv) { return herd::train_chain(argc, argv, make_chain(), make_data()); }
//
//   herd run -n 4 -- ./own_model own.toml mesh.pp=2      as herd train own.toml --ranks 4 mesh.pp=2 does for a family
// Threads: call it from the main thread.
#pragma once

#include "herd/chain/chain_data.h"
#include "herd/chain/model_chain.h"
#include "herd/train/trainer.h"

namespace herd::train {

// Trains by the command line, FILE.toml [section.key=value ...]. Returns the exit status for main(): 0, 2 for a request
// that can't be met, 1 for everything else that ends a run; prints the error. `--help` says what the arguments are.
int train_chain(int argc, char** argv, const Chain& chain, const ChainData& data, const TrainHooks& hooks = {});

}  // namespace herd::train

namespace herd {
using train::train_chain;
}  // namespace herd
