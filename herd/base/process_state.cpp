#include "herd/base/process_state.h"

#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace herd {

namespace {

struct Stat {
  char letter = '?';
  int parent = 0;
  unsigned flags = 0;
};

Stat stat_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');  // the name before the letter stands in parentheses, and may hold some itself
  Stat stat;
  if (end == std::string::npos) return stat;
  std::istringstream fields(line.substr(end + 1));
  int group = 0, session = 0, terminal = 0, foreground = 0;
  fields >> stat.letter >> stat.parent >> group >> session >> terminal >> foreground >> stat.flags;
  return stat;
}

// Says whether SIGKILL waits for the process's first thread, which every thread of a killed process gets.
bool is_being_killed(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
    if ((std::strtoull(line.c_str() + 7, nullptr, 16) >> (SIGKILL - 1) & 1) != 0) return true;
  }
  return false;
}

}  // namespace

char process_state_letter(int pid) { return stat_of(pid).letter; }

bool is_running(int pid) {
  const bool exists = ::kill(pid, 0) == 0 || errno == EPERM;
  const char letter = exists ? process_state_letter(pid) : 'X';  // X: it has ended
  return letter != 'Z' && letter != 'X';
}

int parent_of(int pid) { return stat_of(pid).parent; }

bool is_ending(int pid) {
  constexpr unsigned kExits = 4;  // PF_EXITING of the kernel, which proc(5) shows
  // In the order in which they come, so that none is missed between two looks.
  return is_being_killed(pid) || (stat_of(pid).flags & kExits) != 0 || !is_running(pid);
}

}  // namespace herd
