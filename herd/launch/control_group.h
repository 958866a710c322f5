// Reads this process's control group, of either version of cgroups: limits, and how many processes its
// memory limit killed.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>

namespace herd::launch {

// Counts processes that the memory limit killed since the group exists; nothing where there is no such counter.
std::optional<int64_t> oom_kill_count();
std::optional<int64_t> memory_limit_bytes();  // returns nothing where there is no limit
std::optional<double> cpu_quota();            // returns the limit of CPU time, in cores; nothing where there is none

}  // namespace herd::launch
