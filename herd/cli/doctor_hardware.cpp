#include <hwloc.h>
#include <hwy/targets.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "herd/base/units.h"
#include "herd/cli/doctor_checks_internal.h"
#include "herd/launch/control_group.h"
#include "herd/launch/cores.h"

namespace herd::cli {
namespace {

// Returns the value of the first line "name : value" in a /proc file, or "".
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t proc_bytes(const std::string& name) { return std::atoll(proc_value("/proc/meminfo", name).c_str()) * 1024; }

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string topology() {
  hwloc_topology_t machine;
  if (hwloc_topology_init(&machine) != 0) return "unknown";
  std::string text = "unknown";
  if (hwloc_topology_load(machine) == 0) {
    const auto count = [&](hwloc_obj_type_t type) { return std::max(0, hwloc_get_nbobjs_by_type(machine, type)); };
    text = std::to_string(count(HWLOC_OBJ_PACKAGE)) + " package(s), " + std::to_string(count(HWLOC_OBJ_NUMANODE)) +
           " NUMA node(s), " + std::to_string(count(HWLOC_OBJ_CORE)) + " cores, " +
           std::to_string(count(HWLOC_OBJ_PU)) + " hardware threads";
    if (const hwloc_obj_t cache = hwloc_get_obj_by_type(machine, HWLOC_OBJ_L3CACHE, 0)) {
      text += ", L3 " + size_text(static_cast<int64_t>(cache->attr->cache.size)) + " each";
    }
  }
  hwloc_topology_destroy(machine);
  return text;
}

// Returns the bytes per second that `threads` copy at the same time, the best of three rounds. A byte read and written
// counts once.
double copy_bandwidth(int threads) {
  constexpr size_t kBytes = size_t{128} << 20;  // more than the caches hold
  std::vector<std::vector<char>> from(static_cast<size_t>(threads), std::vector<char>(kBytes, 1)), to = from;
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto started = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (size_t i = 0; i < from.size(); ++i) {
      workers.emplace_back([&, i] { std::memcpy(to[i].data(), from[i].data(), kBytes); });
    }
    for (std::thread& worker : workers) worker.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    best = std::max(best, static_cast<double>(kBytes) * threads / seconds);
  }
  return best;
}

std::string gigabytes_per_s(double bytes_per_s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB/s", bytes_per_s / 1e9);
  return text;
}

Finding limit(const char* name, decltype(RLIMIT_NOFILE) resource, bool bytes, rlim_t enough, const char* why,
              const char* fix) {
  rlimit value = {};
  getrlimit(resource, &value);
  if (value.rlim_cur == RLIM_INFINITY) return {name, "unlimited"};
  const std::string text = bytes ? size_text(static_cast<int64_t>(value.rlim_cur)) : std::to_string(value.rlim_cur);
  if (value.rlim_cur >= enough) return {name, text};
  return {name, text + ": " + why, Health::kNote, fix};
}

}  // namespace

void look_at_processor(std::vector<Finding>& findings) {
  const int usable = launch::usable_cores(), all = static_cast<int>(std::thread::hardware_concurrency());
  const std::string model = proc_value("/proc/cpuinfo", "model name");
  findings.push_back(
      {"cores", std::to_string(usable) + " usable of " + std::to_string(all) + (model.empty() ? "" : ", " + model)});
  const int64_t supported = hwy::SupportedTargets();
  findings.push_back({"SIMD", hwy::TargetName(supported & -supported)});  // the lowest bit is the best target
  findings.push_back({"topology", topology()});
}

void look_at_memory(std::vector<Finding>& findings, bool measure) {
  const int64_t total = proc_bytes("MemTotal"), available = proc_bytes("MemAvailable");
  findings.push_back({"memory", size_text(available) + " available of " + size_text(total)});
  if (const auto bytes = launch::memory_limit_bytes()) {
    findings.push_back({"memory limit", size_text(*bytes) + " (control group)"});
  }
  if (measure) {
    const int cores = launch::usable_cores();
    findings.push_back({"copy bandwidth", gigabytes_per_s(copy_bandwidth(1)) + " on one core, " +
                                              gigabytes_per_s(copy_bandwidth(cores)) + " on " + std::to_string(cores)});
  }
  findings.push_back(limit("locked memory", RLIMIT_MEMLOCK, true, rlim_t{1} << 30,
                           "pinned host buffers and RDMA need more",
                           "ulimit -l unlimited, or memlock in /etc/security/limits.conf"));
  findings.push_back(
      limit("open files", RLIMIT_NOFILE, false, 1024, "a rank with many peers needs more", "ulimit -n 4096"));
  struct statvfs shm = {};
  if (statvfs("/dev/shm", &shm) == 0) {
    const auto size = static_cast<int64_t>(shm.f_blocks) * static_cast<int64_t>(shm.f_frsize);
    findings.push_back({"/dev/shm", size_text(size) + " (herd's own shared memory does not use it)"});
  }
}

}  // namespace herd::cli
