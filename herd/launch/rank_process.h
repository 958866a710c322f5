// Runs one rank as a process, started by posix_spawn (never a fork: threads run), with its output in two pipes.
// Threads: one at a time.
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
  int output = -1, errors = -1;    // this process's ends of the pipes; -1 once closed
  std::optional<int> wait_status;  // as waitpid(2) gives it, once the process has ended
  bool running() const { return !wait_status.has_value(); }
  bool failed() const { return wait_status.has_value() && *wait_status != 0; }
};

// Starts a process with default signal handlers and an empty standard input. Throws kBadConfig where the program
// can't be started. `group` is the process group that it joins; 0 = a new one of its own.
RankProcess start_rank(int rank, const std::vector<std::string>& command, const Variables& variables, pid_t group);
bool reap(RankProcess& process);            // never waits; true at the one call that finds the process ended
int exit_status(int wait_status);           // returns the exit status, or 128 + signal
std::string describe_end(int wait_status);  // returns "exited with status 3" or "was killed by signal 9 (Killed)"

}  // namespace herd::launch
