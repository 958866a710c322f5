// Lets ranks that do not wait for each other's steps (strategy.sync = "server_async") hear how far the others are, and
// meet. They do so through the first server, without a group of them all: a rank that is lost keeps no other from going
// on.   Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "herd/runtime/served_parameters.h"

namespace herd::train {

inline constexpr int kDeadlinesOfWork = 10;  // within which ranks that serve validate or save

class RunningAhead {
 public:
  struct Options {
    std::chrono::milliseconds deadline{60000};  // of a meeting
    // Called with each rank that is lost, the last of those that are lost at once. Throws where the run ends by it.
    std::function<void(int64_t rank)> lost = {};
  };
  // Borrows `served`.
  RunningAhead(runtime::ServedParameters& served, Options options);

  // Says what this rank has done. Throws as Options::lost.
  void report(const WorkerProgress& mine);
  // Returns once each rank that is left has done as many steps as this one, and the server of this rank, if it has one,
  // has taken all that lost ranks have sent. Throws as report(), and kTimeout.
  void wait_for_slowest();
  // Returns once each rank that is left has called it as often. Throws kTimeout; else as report().
  void meet();
  // The same where ranks that serve work meanwhile, with ten times the deadline: they validate or save for all.
  void meet_after_work();
  // Returns the sums, and the greatest staleness, that all ranks have reported since this rank's last take().
  JobProgress take();
  // Returns after how many steps all stop, since a rank has asked for it; JobProgress::kNever where none has.
  int64_t stop_after() const { return heard_.stop_after; }
  int64_t num_lost() const { return heard_.num_lost; }

 private:
  void meet_within(std::chrono::milliseconds deadline);

  runtime::ServedParameters& served_;
  Options options_;
  WorkerProgress mine_;
  JobProgress heard_;
};

}  // namespace herd::train
