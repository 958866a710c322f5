// Computes how many ranks this node can start before it runs out of something, so that a slip of the keyboard is
// refused before anything starts. Bounds of what no program could do with less, not advice: `herd plan` says what fits.
//   descriptors  3 of each rank here (two pipes, a log), 1 of each rank of the job for the store, 64 for the rest
//   memory       8 MiB of a process, in what is available now and in the control group's limit
//   cores        256 ranks take turns on one
#pragma once

#include <cstdint>
#include <string>

namespace herd::launch {

struct Capacity {
  int64_t ranks = 0;   // that can be started on this node
  std::string reason;  // "open files: 1024, of which a rank takes 4"
};

Capacity capacity_of_this_node(int num_nodes);

}  // namespace herd::launch
