// One run of herd train with a fault, drawn by seed and number, and what has to be so afterwards.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "command.h"

namespace herd::train {

enum class Fault { kKill, kStop, kSignal, kFullDisk, kStalledReader, kSecondJob, kStranger, kTruncatedFile, kRestart };
inline constexpr const char* kFaultNames[] = {"kill",       "stop",     "signal",         "full disk", "stalled reader",
                                              "second job", "stranger", "truncated file", "restart"};
inline constexpr int kNumFaults = 9;
inline constexpr int kFaultySteps = 40;
enum class Servers { kNone, kColocated, kDedicated };

// Run `number` of a sampler's seed. What else happens in it is drawn from `random`.
struct FaultyRun {
  FaultyRun(uint32_t seed_, int number_)
      : seed(seed_), number(number_), fault(static_cast<Fault>(number_ % kNumFaults)) {
    std::seed_seq words{seed_, static_cast<uint32_t>(number_)};
    random.seed(words);
    step = below(5) == 0 ? 0 : 1 + below(kFaultySteps - 5);
    zero = below(4);
    servers = static_cast<Servers>(std::max(0, below(6) - 3));
  }
  int ranks() const { return servers == Servers::kDedicated ? 3 : 2; }
  int below(int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); }
  std::string name() const {
    return std::string(kFaultNames[static_cast<int>(fault)]) + " at step " + std::to_string(step) + ", " +
           (servers == Servers::kNone        ? "ZeRO " + std::to_string(zero)
            : servers == Servers::kColocated ? "servers"
                                             : "dedicated servers") +
           "; again with HERD_FAULTY_RUN=" + std::to_string(seed) + ":" + std::to_string(number);
  }

  uint32_t seed;
  int number;
  Fault fault;
  std::mt19937 random;
  int step = 0;  // the fault comes once so many steps are done; 0: while ranks start
  int zero = 0;  // where there are no servers
  Servers servers = Servers::kNone;
};

// Turns until `done`, `seconds` at most; whether it was.
inline bool within(int seconds, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(2000);
  }
  return true;
}

// Its exit status, 128 + signal; nothing if it has not ended in time.
inline std::optional<int> ended_within(int seconds, pid_t process) {
  int status = 0;
  if (!within(seconds, [&] { return waitpid(process, &status, WNOHANG) == process; })) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// When a process began, as the system counts it; empty if it has ended, though perhaps nobody has waited for it.
inline std::string beginning_of(pid_t process) {
  const std::string text = slurp("/proc/" + std::to_string(process) + "/stat");
  const size_t at = text.rfind(')');
  if (at == std::string::npos) return "";
  std::istringstream words(text.substr(at + 1));
  std::string word;
  for (int field = 3; field <= 22 && words >> word; ++field) {
    if (field == 3 && (word == "Z" || word == "X")) return "";
  }
  return word;
}

inline bool over(pid_t process) { return beginning_of(process).empty(); }

inline int lines_of(const fs::path& path) {
  const std::string text = slurp(path);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

// The processes of a job by what they are: "rank 0", "rank 1", "launcher", "guardian".
inline std::map<std::string, pid_t> processes_of(const fs::path& root, pid_t launcher) {
  std::map<std::string, pid_t> found;
  for (const pid_t pid : Command::processes_with(root.string())) {
    const fs::path process = "/proc/" + std::to_string(pid);
    const std::string environment = slurp(process / "environ");
    const size_t at = environment.find("HERD_RANK=");
    if (slurp(process / "cmdline").find("herd-trainer") != std::string::npos && at != std::string::npos)
      found[std::string("rank ") + environment[at + 10]] = pid;
    else if (pid == launcher)
      found["launcher"] = pid;
    else if (slurp(process / "comm") == "herd-guardian\n")  // not a rank that has yet to become its program
      found["guardian"] = pid;
  }
  return found;
}

// Ports that a process listens at.
inline std::set<int> ports_of(pid_t process) {
  std::set<std::string> sockets;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process) + "/fd", gone)) {
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::set<int> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(slurp(table));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> all;
      for (std::string word; words >> word;) all.push_back(word);
      if (all.size() > 9 && all[3] == "0A" && sockets.contains(all[9]))
        ports.insert(std::stoi(all[1].substr(all[1].rfind(':') + 1), nullptr, 16));
    }
  }
  return ports;
}

}  // namespace herd::train
