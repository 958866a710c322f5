// Ends every process of a job with its launcher, even a launcher that SIGKILL ends. The guardian is a tiny process that
// leads the job's process group, waits for the launcher's pipe to close, and then kills the group. A process that
// starts a session of its own leaves the group and survives. Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace herd::launch {

class Guardian {
 public:
  Guardian();   // forks, so it REQUIRES a process of one thread; throws kStorage where no process can be started
  ~Guardian();  // kills what is left of the group
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  pid_t group() const { return group_; }
  // Starts another guardian where this one has ended, and then returns what to tell the user. Call it often.
  std::optional<std::string> replace_if_dead();
  void signal_group(int signal) const;  // REQUIRES signal != SIGKILL; the guardian ignores every other one, and stays
  void kill_members() const;            // sends SIGKILL to all in the group but the guardian

 private:
  void start();
  pid_t group_ = 0;  // process id of the first guardian, which is waited for last, so that nobody else gets the number
  pid_t pid_ = -1;   // -1: none could be started
  int pipe_ = -1;
  std::vector<pid_t> dead_;
};

}  // namespace herd::launch
