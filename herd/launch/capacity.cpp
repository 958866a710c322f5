#include "herd/launch/capacity.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "herd/base/units.h"
#include "herd/launch/control_group.h"
#include "herd/launch/cores.h"

namespace herd::launch {
namespace {

constexpr int64_t kMinRankBytes = int64_t{8} << 20, kMaxRanksPerCore = 256;
constexpr int64_t kLauncherFds = 64;  // descriptors of the launcher itself
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t available = kUnlimited;
  for (int64_t kib; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") available = kib << 10;
  }
  return std::min(available, memory_limit_bytes().value_or(kUnlimited));
}

}  // namespace

Capacity capacity_of_this_node(int num_nodes) {
  const int64_t fds_per_rank = 3 + num_nodes;  // two pipes and a log, and one connection for the rank of every node
  const int64_t fds = descriptor_limit(), bytes = available_bytes(), cores = usable_cores();
  const Capacity capacities[] = {
      {std::max<int64_t>(1, (fds - kLauncherFds) / fds_per_rank),
       "open files (ulimit -n): " + std::to_string(fds) + ", of which the launcher takes " +
           std::to_string(kLauncherFds) + " and a rank " + std::to_string(fds_per_rank)},
      {std::max<int64_t>(1, bytes / kMinRankBytes), "memory: " + format_bytes(static_cast<double>(bytes)) +
                                                        ", of which a process takes " +
                                                        format_bytes(static_cast<double>(kMinRankBytes)) + " at least"},
      {cores * kMaxRanksPerCore, "cores: " + std::to_string(cores) + ", on each of which " +
                                     std::to_string(kMaxRanksPerCore) + " ranks take turns"}};
  return *std::ranges::min_element(capacities, {}, &Capacity::ranks);
}

}  // namespace herd::launch
