// SIGINT and SIGTERM ask for a clean stop: the loop finishes its step, saves and returns.
// One that comes two seconds or more after the first ends the process at once.
// Threads: one StopSignal per process; requested() from any thread.
#pragma once

namespace herd::train {

class StopSignal {
 public:
  StopSignal();   // installs the handlers
  ~StopSignal();  // puts back what was there
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  static bool requested();
};

}  // namespace herd::train
