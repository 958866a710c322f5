// Measures how far apart the cores of two ranks are: one round trip of a cache line between ranks 0 and 1. A virtual
// machine's cores may share a physical core at one moment and sit in two sockets at the next, so a bench says where it
// ran. Threads: one at a time; collective.
#pragma once

#include "herd/comm/communicator.h"

namespace herd::cli {

class CoreDistance {
 public:
  explicit CoreDistance(Communicator& comm);
  // Returns nanoseconds. Returns 0 where ranks outnumber cores, since nobody may spin there, where they are on several
  // hosts, and for one rank.
  double round_trip_ns();

 private:
  Communicator& comm_;
  SymmetricMemory memory_;
  bool measures_ = false;
};

}  // namespace herd::cli
