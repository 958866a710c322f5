#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "herd/memory/shared_memory.h"

namespace herd {
namespace {

// Returns the number in a one-line file; `fallback` where it says "max", or there is no such file.
int64_t read_number(const std::string& path, int64_t fallback) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : fallback;
}

int64_t machine_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, unit; file >> key;) {
    int64_t kib = 0;
    file >> kib;
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// Returns the least memory left in the process's control group and those above it (cgroup v2).
int64_t control_group_available() {
  constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  int64_t least = kUnlimited;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3);; path.resize(path.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + path;
      const int64_t limit = read_number(folder + "/memory.max", kUnlimited);
      if (limit != kUnlimited)
        least = std::min(least, limit - std::min(limit, read_number(folder + "/memory.current", 0)));
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace

int64_t available_memory() { return std::min(machine_available(), control_group_available()); }

}  // namespace herd
