// Writes "convert  43 %  1.8 MiB of 4.1 MiB  2.7 MiB/s" to standard error, rewritten in place and gone at the end,
// where standard error is a terminal. Threads: one at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace herd::cli {

class ProgressLine {
 public:
  ProgressLine(std::string what, bool shown);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void update(int64_t done, int64_t all);  // bytes

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool shown_, printed_ = false;
  Clock::time_point begin_ = Clock::now(), last_ = {};
};

// Says on standard error what a command does: on a terminal in one line, rewritten in place and gone at the end, as in
// "herd plan: programs of changed runs, 3 of 12 (7 s)"; elsewhere in a line every few seconds. Threads: one at a time.
class StatusLine {
 public:
  explicit StatusLine(std::string what);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  void update(std::string doing);

 private:
  void print() const;

  using Clock = std::chrono::steady_clock;
  const std::string what_;
  const bool at_terminal_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stops_ = false;
  std::string doing_;
  std::thread printer_;  // prints what is done, also while that takes long
};

}  // namespace herd::cli
