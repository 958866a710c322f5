// The log file of one rank: what it printed, as it came. On a full disk lines wait in memory and are tried again, so
// the log is whole once there is room, and the job stands still for none.
// Threads: one.
#pragma once

#include <cstddef>
#include <string>

namespace herd::launch {

class RankLog {
 public:
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;  // what comes beyond is left out of the log

  // Appends to the descriptor, which it closes; -1 = keeps nothing.
  explicit RankLog(int fd) : fd_(fd) {}
  ~RankLog();
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;

  void append(const std::string& text);
  int failure() const { return failure_; }  // why the file takes nothing at present, an errno; 0 where it does
  // Tries what waits once more. Returns why something is not in the file, an errno; 0 where all is.
  int finish();

 private:
  void write_waiting();
  int fd_;
  int failure_ = 0;
  int missing_ = 0;  // why something was left out, an errno
  std::string waiting_;
};

}  // namespace herd::launch
