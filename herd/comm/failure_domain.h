// The groups of one rank that fail together: a world, the groups split off it, and theirs. An error in any of them ends
// them all, on every rank that shares one with this rank, and so on: a rank that waits in one group hears what happened
// in another that it does not belong to. All throw the first cause's words.
// Threads: every method under the engine's lock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/ids.h"

namespace herd::comm {

class GroupState;

struct Failure {
  Rank finder = -1;  // of the transport
  Code code = Code::kAborted;
  std::string text;
};

class FailureDomain {
 public:
  void add(GroupState& group);  // which fails at once where the others have failed
  void remove(GroupState& group);
  // Fails all groups, on all their ranks. Where a peer was first, with its cause; where these groups have failed
  // before, it does nothing.
  void fail(Failure cause);
  // Fails all groups if a peer has failed one of them, be it one in which this rank has nothing in flight.
  void look();

 private:
  std::vector<GroupState*> groups_;  // the world first: ranks that fail at the same time agree there whose cause it is
  std::optional<Failure> cause_;
};

}  // namespace herd::comm
