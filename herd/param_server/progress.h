// Collects how far the workers of a job are, so that they agree without waiting for each other: the first server keeps
// what each has reported last.   Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace herd::param_server {

// What a worker says at the end of a step.
struct WorkerProgress {
  int64_t steps = 0;      // that it has done
  double sum = 0;         // over the last of them, of something to average, such as the losses of tokens
  int64_t count = 0;      // of what was summed
  int64_t staleness = 0;  // the greatest of its pulls since its last report (ServerClient::staleness)
  bool wants_stop = false;
  int64_t meetings = 0;  // that it has come to
};

// What it hears of all workers: sum, count and staleness since its last report.
struct JobProgress {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t slowest = 0;  // steps that each worker that is there has done
  double sum = 0;       // over the steps that were reported
  int64_t count = 0;
  int64_t staleness = 0;        // the greatest
  int64_t stop_after = kNever;  // steps after which all stop, since one has asked for it; nobody has done more so far
  int64_t meetings = 0;         // to which each worker that is there has come
  int64_t num_lost = 0;         // workers that were lost
  int64_t last_lost = -1;       // the last of them
};

class ProgressTable {
 public:
  explicit ProgressTable(int num_workers) : workers_(static_cast<size_t>(num_workers)) {}
  // Counts sum and count once for each number of steps: a worker that waits may report again.
  JobProgress report(int worker, const WorkerProgress& progress);
  void remove(int worker) { workers_[static_cast<size_t>(worker)].present = false; }  // it left in good order
  void lose(int worker);
  int64_t num_lost() const { return num_lost_; }

 private:
  struct Worker {
    int64_t steps = 0;
    int64_t meetings = 0;
    bool present = true;
    JobProgress unheard;  // sum, count and staleness of what others reported since
  };
  std::vector<Worker> workers_;
  int64_t stop_after_ = JobProgress::kNever, num_lost_ = 0, last_lost_ = -1;
};

}  // namespace herd::param_server

namespace herd {
using param_server::JobProgress, param_server::WorkerProgress;
}  // namespace herd
