#include "herd/launch/control_group.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "herd/launch/cores.h"

namespace herd::launch {
namespace {

// Returns the folder of this process's group for one controller and the folders above it, innermost first. Inside a
// container the path that /proc names may not exist: then the root of the mount is the group. `unified`: version 2.
std::vector<std::string> folders(const std::string& controller, bool& unified) {
  std::ifstream file("/proc/self/cgroup");
  std::string line, path, root;
  unified = true;
  while (std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty() && root.empty()) {
      root = std::filesystem::exists("/sys/fs/cgroup/unified") ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup";
      path = line.substr(second + 1);
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name != controller || !std::filesystem::exists("/sys/fs/cgroup/" + name)) continue;
      root = "/sys/fs/cgroup/" + name;
      path = line.substr(second + 1);
      unified = false;
    }
  }
  std::vector<std::string> result;
  for (std::filesystem::path at = path; !root.empty() && at.has_relative_path(); at = at.parent_path()) {
    if (std::filesystem::exists(root + at.string())) result.push_back(root + at.string());
  }
  if (!root.empty()) result.push_back(root);
  return result;
}

std::optional<std::string> first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return word;
}

}  // namespace

std::optional<int64_t> oom_kill_count() {
  bool unified = false;
  for (const std::string& folder : folders("memory", unified)) {
    std::ifstream file(folder + (unified ? "/memory.events" : "/memory.oom_control"));
    std::string name;
    for (int64_t count; file >> name >> count;) {
      if (name == "oom_kill") return count;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> memory_limit_bytes() {
  bool unified = false;
  std::optional<int64_t> lowest;
  for (const std::string& folder : folders("memory", unified)) {
    const auto word = first_word(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    if (!word || *word == "max") continue;
    const int64_t bytes = std::strtoll(word->c_str(), nullptr, 10);
    constexpr int64_t kUnlimited = int64_t{1} << 60;  // bytes; version 1 writes a huge number for "none"
    if (bytes > 0 && bytes < kUnlimited) lowest = std::min(lowest.value_or(bytes), bytes);
  }
  return lowest;
}

std::optional<double> cpu_quota() {
  bool unified = false;
  std::optional<double> lowest;
  for (const std::string& folder : folders("cpu", unified)) {
    double quota = -1, period = 100'000;
    if (unified) {
      std::ifstream file(folder + "/cpu.max");
      if (!(file >> quota >> period)) continue;
    } else {
      quota = std::strtod(first_word(folder + "/cpu.cfs_quota_us").value_or("-1").c_str(), nullptr);
      period = std::strtod(first_word(folder + "/cpu.cfs_period_us").value_or("100000").c_str(), nullptr);
    }
    if (quota > 0 && period > 0) lowest = std::min(lowest.value_or(quota / period), quota / period);
  }
  return lowest;
}

int machine_cores() { return static_cast<int>(std::max(1l, sysconf(_SC_NPROCESSORS_ONLN))); }

int host_cores() {
  const int cores = machine_cores();
  const double quota = cpu_quota().value_or(cores);
  return std::max(1, std::min(cores, static_cast<int>(std::ceil(quota))));
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int bound_to = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, std::min(bound_to, host_cores()));
}

}  // namespace herd::launch
