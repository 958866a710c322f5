// Blocks a launcher's signals for as long as this object exists, and reads them from a descriptor: those that ask for a
// stop, and SIGCHLD, which only wakes a poll. Construct it before any thread starts, since threads inherit blocked
// signals. Threads: one.
#pragma once

#include <signal.h>

#include <chrono>
#include <string>

namespace herd::launch {

class BlockedSignals {
 public:
  BlockedSignals();  // throws kStorage where no descriptor is left
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  int fd() const { return fd_; }                    // becomes readable when a signal has arrived
  int next();                                       // returns the next signal that asks for a stop, or 0
  int next_within(std::chrono::milliseconds time);  // like next(), but waits at most `time` for one

 private:
  sigset_t before_;  // signals that the thread blocked before
  int fd_ = -1;
};

std::string signal_name(int signal);  // returns "signal 15 (Terminated)"

}  // namespace herd::launch
