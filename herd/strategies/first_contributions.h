// Decides which contribution to a gradient begins it, after a rewrite that changed the sequence of ops. Threads: pure.
#pragma once

#include <vector>

#include "herd/program/program.h"

namespace herd::strategies {

// Sets reads so that the first op of a sequence that writes a gradient does not read it, and all others add to it.
void let_first_contributions_write(std::vector<program::Op>& ops);

}  // namespace herd::strategies
