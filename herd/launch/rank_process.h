// One rank as a process: started by posix_spawn (never a fork: threads run), its output in two pipes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "herd/launch/environment.h"

namespace herd::launch {

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;
  int output = -1, errors = -1;    // our ends of the pipes; -1 once closed
  std::optional<int> wait_status;  // as waitpid gives it, once the process has ended
  bool running() const { return !wait_status.has_value(); }
  bool failed() const { return wait_status.has_value() && *wait_status != 0; }
};

// Signals are back at their defaults in the new process, standard input is empty. Throws kBadConfig where the program
// can't be started.
RankProcess start_rank(int rank, const std::vector<std::string>& command, const Variables& variables, pid_t group);
bool reap(RankProcess& process);            // true when the process has just ended
int exit_status(int wait_status);           // the exit status, or 128 + signal
std::string describe_end(int wait_status);  // "exited with status 3", "was killed by signal 9 (Killed)"

}  // namespace herd::launch
