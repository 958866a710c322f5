// Signals that ask for a stop (launch/stop_request.h): before the first step they end the process, which says that
// nothing was done; from then on the loop finishes its step, saves and returns. Asked again, they end it at once.
// A reader of our output that leaves (SIGPIPE) asks for nothing.
// Threads: one StopSignal per process; requested() from any thread.
#pragma once

namespace herd::train {

class StopSignal {
 public:
  explicit StopSignal(bool says);  // installs the handlers; `says`: one rank speaks for all
  ~StopSignal();                   // puts back what was there
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static void first_step_begins();
  static bool requested();
};

}  // namespace herd::train
