#include "herd/planner/search_limit.h"

#include <algorithm>

namespace herd::planner {

bool SearchLimit::is_over() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count() >= share_ * seconds_;
}

void SearchLimit::leave_out(const std::string& what) {
  if (std::ranges::find(left_out_, what) == left_out_.end()) left_out_.push_back(what);
}

bool SearchLimit::allows(const std::string& what, size_t index, size_t count) {
  if (!is_over() || (index == 0 && !has_result_)) {
    if (report_) report_(what + ", " + std::to_string(index + 1) + " of " + std::to_string(count));
    return true;
  }
  const bool noted =
      std::ranges::any_of(left_out_, [&](const std::string& one) { return one.starts_with(what + ": "); });
  if (!noted) leave_out(what + ": " + std::to_string(count - index) + " of " + std::to_string(count));
  return false;
}

}  // namespace herd::planner
