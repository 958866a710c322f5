// Counts the cores that ranks share; several hosts may be containers on one machine. Threads: any.
#pragma once

#include "herd/transport/transport.h"

namespace herd::comm {

// Returns the cores per rank of this rank's host, or of the whole machine where that is fewer. Below 1, ranks
// outnumber cores and take turns on them.
double cores_per_rank(const transport::Transport& transport);

// Returns the cores that all ranks of this host may use; at least 1.
int cores_for_ranks_of_host(const transport::Transport& transport);

// Tells whether all ranks run on one machine, and so read one clock.
bool on_one_machine(const transport::Transport& transport);

}  // namespace herd::comm
