// Handles signals that ask for a stop (launch/stop_request.h). Before the first step they end the process, with a
// message that nothing was done. From then on the loop finishes its step, saves and returns; a second request ends the
// process at once. SIGPIPE, when a reader of the output leaves, is not a
// request to stop.
// Threads: one StopSignal per process; requested() from any thread.
#pragma once

namespace herd::train {

class StopSignal {
 public:
  explicit StopSignal(bool prints);  // installs the handlers; `prints`: this rank prints the message for all
  ~StopSignal();                     // restores the handlers from before
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static void note_first_step();  // from now on a signal asks for a stop after the step
  static bool requested();
};

}  // namespace herd::train
