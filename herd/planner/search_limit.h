// Limits a search in time. The search asks before each unit of its work, which so is said to whoever waits; past the
// limit it keeps what it has, and the limit notes what it leaves out. Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace herd::planner {

class SearchLimit {
 public:
  using Report = std::function<void(const std::string& doing)>;
  SearchLimit(double seconds, Report report) : seconds_(seconds), report_(std::move(report)) {}

  // Lets the units that follow take time until this share of the limit is over; at first, all of it.
  void allow_until(double share) { share_ = share; }
  bool is_over() const;
  // Reports "`what`, 3 of 12" for index 2. Returns false where the time is over, and notes once for each `what` how
  // many of `count` are left out. The first unit, of index 0, is allowed as long as the search has no result.
  bool allows(const std::string& what, size_t index, size_t count);
  // Says that the search has a result: it begins nothing any more once the time is over.
  void has_result() { has_result_ = true; }
  void leave_out(const std::string& what);  // notes, once, something that a search leaves out because it has stopped

  double seconds() const { return seconds_; }
  const std::vector<std::string>& left_out() const { return left_out_; }  // empty: the search has looked at everything

 private:
  using Clock = std::chrono::steady_clock;
  const double seconds_;
  const Report report_;
  const Clock::time_point begin_ = Clock::now();
  double share_ = 1;
  bool has_result_ = false;
  std::vector<std::string> left_out_;
};

}  // namespace herd::planner
