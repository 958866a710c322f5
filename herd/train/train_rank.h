// Runs one rank of training, from the launcher's environment to its exit status. Threads: call it from the main thread.
#pragma once

#include <string>
#include <vector>

#include "herd/base/error.h"

namespace herd::train {

// Trains by the run file with its overrides (section.key=value); the environment says which rank this is. Returns 0, or
// the exit status of an error that all ranks share and rank 0 prints. Throws an error that this rank alone has, for the
// caller to print. Sets the process's number of threads and its device budget.
int train_rank(const std::string& run_file, const std::vector<std::string>& overrides);

// Returns 2 for a request that can't be met, 1 for everything else that ends a run.
int exit_status(const Error& error);

}  // namespace herd::train
