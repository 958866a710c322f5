// Sees to it that no process of a job outlives its launcher, even one that SIGKILL ends: a tiny process that leads the
// job's process group, waits for the launcher's pipe to close, and then kills the group. Processes that start a session
// of their own leave the group and are not covered.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace herd::launch {

class Guardian {
 public:
  Guardian();   // forks: before any thread runs. Throws kStorage where no process can be started
  ~Guardian();  // kills what is left of the group
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  pid_t group() const { return group_; }
  // Where the guardian has ended, starts another in its place; returns what to tell the user then. Ask often.
  std::optional<std::string> replace_if_dead();
  void signal_group(int signal) const;  // not SIGKILL: the guardian ignores what can be ignored, and stays
  void kill_members() const;            // SIGKILL for everybody in the group but the guardian

 private:
  void start();
  pid_t group_ = 0;  // process id of the first one, which is waited for last: until then nobody else gets the number
  pid_t pid_ = -1;   // -1: none could be started
  int pipe_ = -1;
  std::vector<pid_t> dead_;
};

}  // namespace herd::launch
