// Defines what ranks share of a machine: hosts may be containers on one. Threads: any.
#pragma once

#include "herd/transport/transport.h"

namespace herd::comm {

// For each rank of this rank's host: of the host's cores, or where fewer, of the machine's. Below 1 ranks take turns.
double cores_a_rank(const transport::Transport& transport);

// Of this rank's host: those, for all its ranks; at least 1.
int cores_of_host(const transport::Transport& transport);

// Of all ranks: then they have one clock.
bool on_one_machine(const transport::Transport& transport);

}  // namespace herd::comm
