#include "herd/train/run_description.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "herd/base/units.h"

namespace herd::train {
namespace {

// Returns the value after "name : " in a file of such lines; empty if there is none.
std::string field_of(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == line.npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return {};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

std::map<std::string, std::string> describe_machine() {
  std::map<std::string, std::string> machine;
  utsname system{};
  if (::uname(&system) == 0) {
    machine["host"] = system.nodename;
    machine["kernel"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  }
  machine["processor"] = field_of("/proc/cpuinfo", "model name");
  machine["cores"] = std::to_string(std::thread::hardware_concurrency());
  const double pages = static_cast<double>(::sysconf(_SC_PHYS_PAGES));
  machine["memory"] = format_bytes(pages * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  machine["start"] = utc_now();
  return machine;
}

std::string format_run_description(const RunDescription& run) {
  const nlohmann::ordered_json json = {{"format", "herd-run"},
                                       {"version", 1},
                                       {"run", run.run_id},
                                       {"job", run.launch_id},
                                       {"began", run.initial_checkpoint},
                                       {"ended_at", run.ended_at},
                                       {"herd", run.herd_version},
                                       {"torch", run.torch_version},
                                       {"ranks", run.ranks},
                                       {"threads", run.threads},
                                       {"machine", run.machine},
                                       {"choice", run.automatic_strategy},
                                       {"algorithms", run.algorithms},
                                       {"topology", run.topology},
                                       {"config", run.config}};
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace herd::train
