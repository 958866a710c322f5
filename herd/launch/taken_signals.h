// Takes a launcher's signals for as long as this object exists: those that ask for a stop, and SIGCHLD, which only
// wakes a poll. Construct it before any thread starts, since threads inherit blocked signals. Threads: one.
#pragma once

#include <signal.h>

#include <chrono>
#include <string>

namespace herd::launch {

class TakenSignals {
 public:
  TakenSignals();  // throws kStorage where no descriptor is left
  ~TakenSignals();
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  int fd() const { return fd_; }                    // becomes readable when a signal is there
  int next();                                       // returns the next signal that asks for a stop, or 0
  int next_within(std::chrono::milliseconds time);  // waits so long for one

 private:
  sigset_t before_;
  int fd_ = -1;
};

std::string signal_name(int signal);  // returns "signal 15 (Terminated)"

}  // namespace herd::launch
