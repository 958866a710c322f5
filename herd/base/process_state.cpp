#include "herd/base/process_state.h"

#include <signal.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace herd {

char process_state_letter(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');  // the name before the letter stands in parentheses, and may hold some itself
  return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

bool is_running(int pid) {
  const bool exists = ::kill(pid, 0) == 0 || errno == EPERM;
  const char letter = exists ? process_state_letter(pid) : 'X';  // X: it has ended
  return letter != 'Z' && letter != 'X';
}

}  // namespace herd
