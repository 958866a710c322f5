// Prints a launcher's lines and those of its ranks. Lines are queued, and threads of its own write them, so a reader
// that stalls or leaves blocks neither signals, heartbeats nor the ranks' pipes.
//   slow reader     makes wants_more() false while a queue is full: ranks wait as at any pipe, and nothing is lost.
//   stalled reader  has taken nothing for kStalled: later lines are dropped, and a line in their place says so.
//   gone reader     has closed its end: later lines are dropped, and standard error says so once.
//   full disk       or another error of the system: as a gone reader, and finish_output() returns it.
// Threads: any may write.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace herd::launch {

class Console {
 public:
  static constexpr size_t kMaxQueuedBytes = size_t{4} << 20;  // per stream
  static constexpr std::chrono::seconds kStalled{5};

  // Ignores SIGPIPE for the whole process, and prints the lines of base/log.h. `elsewhere` says where dropped lines can
  // be read; "" = nowhere.
  explicit Console(const std::string& elsewhere);
  // Waits until all lines are written, or until a reader has taken nothing for kStalled.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // `lines` end with a line feed; `fd` is STDOUT_FILENO or STDERR_FILENO. Never waits.
  void write(int fd, std::string lines);
  // Waits as the destructor does. Returns errno where the standard output could not be written, and 0 where it could,
  // or where its reader has left.
  int finish_output();
  // Returns false while the queue of `fd` is full and its reader still takes lines: then do not read the ranks' pipes.
  bool wants_more(int fd) const;

 private:
  class Stream;
  std::array<std::shared_ptr<Stream>, 2> streams_;  // of output and errors; one stream where both are one file
  std::atomic<bool> reported_gone_ = false;
  Stream& stream(int fd) const;
};

}  // namespace herd::launch
