// Says where NCCL may lie.   Threads: pure, but for the environment.
#pragma once

#include <string>
#include <vector>

namespace herd::launch {

// Returns HERD_NCCL alone where it is set; else libnccl.so.2, as the system finds it, and then those of the nvidia
// packages in `packages` and in the Python environment that VIRTUAL_ENV names.
std::vector<std::string> nccl_paths(const std::vector<std::string>& packages);

}  // namespace herd::launch
