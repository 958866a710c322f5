#include "herd/param_server/progress.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace herd::param_server {

void ProgressTable::lose(int worker) {
  if (!workers_[static_cast<size_t>(worker)].present) return;
  remove(worker);
  ++num_lost_;
  last_lost_ = worker;
}

JobProgress ProgressTable::report(int worker, const WorkerProgress& progress) {
  Worker& own = workers_[static_cast<size_t>(worker)];
  const bool is_new = progress.steps > own.steps;
  own.steps = progress.steps;
  own.meetings = progress.meetings;
  int64_t slowest = std::numeric_limits<int64_t>::max(), fastest = 0, meetings = slowest;
  for (Worker& each : workers_) {
    each.unheard.staleness = std::max(each.unheard.staleness, progress.staleness);
    if (is_new) each.unheard.sum += progress.sum, each.unheard.count += progress.count;
    if (!each.present) continue;
    slowest = std::min(slowest, each.steps);
    fastest = std::max(fastest, each.steps);
    meetings = std::min(meetings, each.meetings);
  }
  // Who has done most steps may be in the next one already.
  if (progress.wants_stop && stop_after_ == JobProgress::kNever) stop_after_ = fastest + 1;
  JobProgress job = std::exchange(own.unheard, {});
  job.slowest = slowest;
  job.stop_after = stop_after_;
  job.meetings = meetings;
  job.num_lost = num_lost_;
  job.last_lost = last_lost_;
  return job;
}

}  // namespace herd::param_server
