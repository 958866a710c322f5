// Starts herd-trainer, the part of the command that needs libtorch.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::cli {

// Returns the program beside this one. Throws kBadConfig where this build has none.
std::string trainer_path();

// Returns the ranks that a run file's mesh asks for: the product of its axes, with dp 1 where it is not stated. Throws
// kBadConfig where no job has so many.
int ranks_of_mesh(const spec::RunFile& run);

// Refuses before any rank starts, and so once, what every rank would refuse: layout, data, vocabulary, memory. Throws
// as spec, data and program do.
void check_before_start(const spec::RunFile& run, int ranks);

}  // namespace herd::cli
