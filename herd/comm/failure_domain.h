// Holds the groups of one rank that fail together: a world, the groups split off it, and theirs. An error in any of
// them ends them all, on every rank that shares one with this rank, and so on. So a rank that waits in one group learns
// of a failure in another group. All groups throw the message of the first cause.
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
  Rank finder = -1;  // transport rank that found the cause
  Code code = Code::kAborted;
  std::string text;
};

class FailureDomain {
 public:
  void add(GroupState& group);  // fails the group at once where the others have failed
  void remove(GroupState& group);
  // Fails all groups, on all their ranks. Uses a peer's cause where that came first. Does nothing where these groups
  // have failed before.
  void fail(Failure cause);
  // Fails all groups if a peer has failed one of them, also one in which this rank has nothing in flight.
  void check_peers();

 private:
  std::vector<GroupState*> groups_;  // the world first: ranks that fail at the same time agree there which cause counts
  std::optional<Failure> cause_;
};

}  // namespace herd::comm
