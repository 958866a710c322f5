// Handles signals that ask for a stop (launch/stop_request.h). Before the first step they end the process, with a
// message that nothing was done. From then on the loop finishes its step, saves and returns; a second request ends the
// process at once. A reader of the output that leaves (SIGPIPE) asks for nothing.
// Threads: one StopSignal per process; requested() from any thread.
#pragma once

namespace herd::train {

class StopSignal {
 public:
  explicit StopSignal(bool says);  // installs the handlers; `says`: this rank prints for all
  ~StopSignal();                   // restores the handlers from before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static void first_step_begins();
  static bool requested();
};

}  // namespace herd::train
