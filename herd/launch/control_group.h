// Defines what this process's control group says: limits, and how often its memory limit killed. Both versions of
// cgroups.
#pragma once

#include <cstdint>
#include <optional>

namespace herd::launch {

std::optional<int64_t> oom_kill_count();      // processes killed by the memory limit since the group exists
std::optional<int64_t> memory_limit_bytes();  // nothing where there is no limit
std::optional<double> cpu_quota();            // cores' worth of time

}  // namespace herd::launch
