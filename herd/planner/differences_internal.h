// Defines how a changed run file differs from the one it came from. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::planner {

// "strategy.zero=3", as herd train takes it; mesh.dp is left out, since it follows from the ranks.
std::vector<std::string> differences(const spec::RunFile& from, const spec::RunFile& to);

// What this version can't run of it; empty = nothing.
std::string not_built(const spec::RunFile& run);

}  // namespace herd::planner
