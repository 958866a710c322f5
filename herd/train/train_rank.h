// Runs one rank of training, from the launcher's environment to its exit status. Threads: call it from the main thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/communicator.h"
#include "herd/spec/run_file.h"
#include "herd/train/owned_folder.h"

namespace herd::train {

// Trains by the run file with its overrides (section.key=value); the environment says which rank this is. Returns 0, or
// the exit status of an error that all ranks share and rank 0 prints. Throws an error that this rank alone has, for the
// caller to print. Sets the process's number of threads and its device budget.
int train_rank(const std::string& run_file, const std::vector<std::string>& overrides);

// Does the same with a training of one's own: `train` runs it, once the run file is read and the ranks have met.
using TrainRun = std::function<void(spec::RunFile run, Communicator& comm, const JobAttempt& attempt)>;
int train_rank(const std::string& run_file, const std::vector<std::string>& overrides, const TrainRun& train);

// Returns 2 for a request that can't be met, 1 for everything else that ends a run.
int exit_status(const Error& error);

}  // namespace herd::train
