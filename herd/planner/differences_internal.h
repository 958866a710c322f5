// Defines how a changed run file differs from the one it came from. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::planner {

// Returns "strategy.zero=3", as herd train takes it, for each difference but mesh.dp, which follows from the ranks.
std::vector<std::string> differences(const spec::RunFile& from, const spec::RunFile& to);

// Says what this version can't run of it; empty = nothing.
std::string not_built(const spec::RunFile& run);

}  // namespace herd::planner
