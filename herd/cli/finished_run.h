// Finds out before any rank starts that a run has nothing left to train. Threads: one.
#pragma once

#include <optional>
#include <string>

#include "herd/spec/run_file.h"

namespace herd::cli {

// Returns what to say where the run in the folder of `run` is finished and the start is one of the very same run.
// Throws as spec::describe_finished_run(), and as plan_start(). Reads a checkpoint only where its name says that it is
// of the last step.
std::optional<std::string> find_finished_run(const spec::RunFile& run);

}  // namespace herd::cli
