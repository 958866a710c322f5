// Starting herd-trainer, the part of the command that needs libtorch.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::cli {

// The program beside this one. Throws kBadConfig where this build has none.
std::string trainer_path();

// Ranks that a run file's mesh asks for: the product of its axes, dp counting 1 where it is not stated. Throws
// kBadConfig where no job has so many.
int ranks_of_mesh(const spec::RunFile& run);

// What every rank would refuse, found before one is started, so that it is said once: layout, data, vocabulary, memory.
// Throws as spec, data and program do.
void check_before_start(const spec::RunFile& run, int ranks);

}  // namespace herd::cli
