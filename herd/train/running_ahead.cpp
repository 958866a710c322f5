#include "herd/train/running_ahead.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "herd/base/error.h"

namespace herd::train {
namespace {

constexpr std::chrono::milliseconds kBetweenReports{2};  // while a rank waits for others

}  // namespace

RunningAhead::RunningAhead(runtime::ServedParameters& served, Options options)
    : served_(served), options_(std::move(options)) {}

void RunningAhead::report(const WorkerProgress& mine) {
  const int64_t meetings = mine_.meetings, lost_before = heard_.num_lost;
  mine_ = mine;
  mine_.meetings = meetings;
  JobProgress job = served_.report(mine_);
  job.sum += heard_.sum;
  job.count += heard_.count;
  job.staleness = std::max(job.staleness, heard_.staleness);
  heard_ = job;
  if (heard_.num_lost > lost_before) options_.lost(heard_.last_lost);
}

void RunningAhead::wait_for_slowest() {
  while (heard_.slowest < mine_.steps) {
    std::this_thread::sleep_for(kBetweenReports);
    report(mine_);
  }
  const auto until = std::chrono::steady_clock::now() + options_.deadline;
  while (served_.num_lost() < heard_.num_lost) {
    if (std::chrono::steady_clock::now() >= until)
      throw Error(Code::kTimeout,
                  "the server of this rank has not heard within " + std::to_string(options_.deadline.count()) +
                      " ms that a rank is lost, as the first one has\n  fix: see whether it still runs");
    std::this_thread::sleep_for(kBetweenReports);
  }
}

void RunningAhead::meet() { meet_within(options_.deadline); }
void RunningAhead::meet_after_work() { meet_within(kDeadlinesOfWork * options_.deadline); }

void RunningAhead::meet_within(std::chrono::milliseconds deadline) {
  const auto until = std::chrono::steady_clock::now() + deadline;
  const int64_t meetings = ++mine_.meetings;
  for (report(mine_); heard_.meetings < meetings; report(mine_)) {
    if (std::chrono::steady_clock::now() >= until)
      throw Error(Code::kTimeout, "not all ranks have come to meeting " + std::to_string(meetings) + " after step " +
                                      std::to_string(mine_.steps) + " within " + std::to_string(deadline.count()) +
                                      " ms\n  fix: see which one stands still; a longer comm.deadline_s");
    std::this_thread::sleep_for(kBetweenReports);
  }
}

JobProgress RunningAhead::take() {
  JobProgress taken = heard_;
  heard_.sum = 0;
  heard_.count = 0;
  heard_.staleness = 0;
  return taken;
}

}  // namespace herd::train
