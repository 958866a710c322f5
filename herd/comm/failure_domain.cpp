#include "herd/comm/failure_domain.h"

#include <algorithm>

#include "herd/comm/group_state.h"

namespace herd::comm {

void FailureDomain::add(GroupState& group) {
  groups_.push_back(&group);
  if (!cause_) return;
  group.announce(*cause_);
  group.end_with(*cause_);
}

void FailureDomain::remove(GroupState& group) { std::erase(groups_, &group); }

void FailureDomain::fail(Failure cause) {
  if (cause_) return;
  for (GroupState* group : groups_) cause = group->announce(cause);
  cause_ = cause;
  for (GroupState* group : groups_) group->end_with(cause);
}

void FailureDomain::look() {
  if (cause_) return;
  for (GroupState* group : groups_) {
    if (auto cause = group->announced()) return fail(*std::move(cause));
  }
}

}  // namespace herd::comm
