// Computes how many ranks this node can start before it runs out of descriptors, memory or cores, so that a mistyped
// number is refused before anything starts. These are bounds that every program needs; `herd plan` says what fits.
//   descriptors  3 for each rank here (two pipes, a log), 1 for each rank of the job (its connection to the store),
//                64 for the rest
//   memory       a process takes 8 MiB of what is available now, and of the control group's limit
//   cores        256 ranks take turns on one
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace herd::launch {

struct Capacity {
  int64_t ranks = 0;   // ranks that can be started on this node
  std::string reason;  // bound that limits ranks: "open files (ulimit -n): 1024, of which .. takes 64 and a rank 4"
};

Capacity capacity_of_this_node(int num_nodes);

}  // namespace herd::launch
