// Copies what ranks print: whole lines go to the console with the rank before them, raw bytes to a log file per rank.
// Threads: one.
#pragma once

#include <string>

#include "herd/launch/console.h"

namespace herd::launch {

// Copies one stream of one rank.
class OutputStream {
 public:
  // Copies from `from`, which is non-blocking and closed at its end, to stream `to` of the console, which it borrows.
  // prefix "" = none; log_file -1 = none (borrowed).
  OutputStream(int from, Console& console, int to, std::string prefix, int log_file);
  ~OutputStream();
  OutputStream(OutputStream&&) noexcept;
  OutputStream& operator=(OutputStream&&) = delete;

  int fd() const { return from_; }  // returns -1 at its end
  // Returns false where the console has no room, so that what is read would wait here.
  bool wanted() const { return console_->reading(to_); }
  void pump();    // copies what is there
  void finish();  // copies what is there, ends the last line, closes

 private:
  void write_lines(bool all);
  int from_;
  Console* console_;
  int to_;
  std::string prefix_;
  int log_file_;
  std::string pending_;  // the line that has no end yet
};

void write_all(int fd, const std::string& text);

}  // namespace herd::launch
