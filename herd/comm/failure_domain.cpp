#include "herd/comm/failure_domain.h"

#include <algorithm>

#include "herd/comm/group_state.h"

namespace herd::comm {

void FailureDomain::add(GroupState& group) {
  groups_.push_back(&group);
  if (!cause_) return;
  group.publish_failure(*cause_);
  group.fail_pending(*cause_);
}

void FailureDomain::remove(GroupState& group) { std::erase(groups_, &group); }

void FailureDomain::fail(Failure cause) {
  if (cause_) return;
  for (GroupState* group : groups_) cause = group->publish_failure(cause);
  cause_ = cause;
  for (GroupState* group : groups_) group->fail_pending(cause);
}

void FailureDomain::check_peers() {
  if (cause_) return;
  for (GroupState* group : groups_) {
    if (auto cause = group->peer_failure()) return fail(*std::move(cause));
  }
}

}  // namespace herd::comm
