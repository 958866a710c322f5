// Writes "convert  43 %  1.8 MiB of 4.1 MiB  2.7 MiB/s" to standard error, rewritten in place and gone at the end,
// where standard error is a terminal. Threads: one at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

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

}  // namespace herd::cli
