// The signals that a launcher lives by, taken for as long as this exists: those that ask for a stop, and SIGCHLD, which
// only wakes who polls. Construct it before any thread starts: threads inherit what is blocked. Threads: one.
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

  int fd() const { return fd_; }                    // readable when a signal is there
  int next();                                       // the next signal that asks for a stop, or 0
  int next_within(std::chrono::milliseconds time);  // the same, waiting for one

 private:
  sigset_t before_;
  int fd_ = -1;
};

std::string signal_name(int signal);  // "signal 15 (Terminated)"

}  // namespace herd::launch
