// Lets ranks on one host, started by torchrun, mpirun or srun, find the store of rank 0 without an address. Rank 0
// listens on the abstract Unix socket "herd/<user id>/<job id>", and tells address and token to processes of its own
// user alone (SO_PEERCRED). Abstract sockets leave no file behind, whatever kills the process.
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "herd/base/store.h"

namespace herd::launch {

struct MeetingPoint {
  std::string rendezvous;  // HOST:PORT of rank 0's store
  std::string token;       // secret of the job
};

class LocalMeeting {
 public:
  // Answers from a thread of its own until destroyed. Throws kBadConfig where another live job on this host has the
  // same id.
  LocalMeeting(const std::string& job_id, MeetingPoint point);
  ~LocalMeeting();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Asks rank 0, and waits for it until the deadline. Throws kTimeout; kBadConfig where another user's process has taken
// the name.
MeetingPoint ask_local_meeting(const std::string& job_id, SteadyTime deadline);

}  // namespace herd::launch
