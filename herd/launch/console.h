// Defines what a launcher prints, its own lines and its ranks': queued, and written by threads of their own, so that a
// reader that stalls or leaves keeps nobody from signals, heartbeats or the ranks' pipes.
//   slow reader   reading() is false while a queue is full, so that its ranks wait as at any pipe, and nothing is lost
//   stalled       that takes nothing for kStalled: what comes then is left out, and the place says so
//   gone          what comes is left out; standard error says so once
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
  static constexpr size_t kMostQueued = size_t{4} << 20;  // bytes of a stream
  static constexpr std::chrono::seconds kStalled{5};

  // Ignores SIGPIPE for the whole process, and takes over the lines of base/log.h. `elsewhere` says where what is left
  // out can be read, "" = nowhere.
  explicit Console(const std::string& elsewhere);
  // Waits until all is written, or until a reader has taken nothing for kStalled.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // `lines` end with a line feed; `fd` is STDOUT_FILENO or STDERR_FILENO. Never waits.
  void write(int fd, std::string lines);
  // Whether what goes to `fd` should be read on: it has room, or its reader takes nothing anyway.
  bool reading(int fd) const;

 private:
  class Stream;
  std::array<std::shared_ptr<Stream>, 2> streams_;  // of output and errors; the same where both are one file
  std::atomic<bool> told_ = false;
  Stream& stream(int fd) const;
};

}  // namespace herd::launch
