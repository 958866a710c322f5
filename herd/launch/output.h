// Copies what ranks print: whole lines go to the console with the rank before them, raw bytes to a log file per rank.
// Threads: one.
#pragma once

#include <string>

#include "herd/launch/console.h"
#include "herd/launch/rank_log.h"

namespace herd::launch {

// Copies one stream of one rank.
class OutputStream {
 public:
  // Copies from the descriptor `from_fd`, which is non-blocking and closed at its end, to a stream of the console,
  // and to the rank's log, both borrowed. prefix "" = none.
  OutputStream(int from_fd, Console& console, int console_stream, std::string prefix, RankLog& log);
  ~OutputStream();
  OutputStream(OutputStream&&) noexcept;
  OutputStream& operator=(OutputStream&&) = delete;

  int fd() const { return from_fd_; }  // returns -1 at its end
  // Tells whether the console takes more; if not, the caller leaves the data in the pipe.
  bool can_write() const { return console_->wants_more(console_stream_); }
  void copy_available();  // copies what is there, 1 MiB at most
  void finish();          // copies what is there, ends the last line, closes

 private:
  void write_lines(bool with_unfinished_line);
  int from_fd_;
  Console* console_;
  int console_stream_;
  std::string prefix_;
  RankLog* log_;
  std::string pending_;  // the line that has no end yet
};

}  // namespace herd::launch
