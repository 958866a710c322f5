#include "herd/sim/engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/sim/fair_share_internal.h"

namespace herd::sim {
namespace {

// Work of at most kDoneUs + kDoneOfClock * clock us counts as done, since rounding may leave it over. The limit grows
// with the clock: work shorter than the clock's last digit would never pass.
constexpr double kDoneUs = 1e-9;
constexpr double kDoneOfClock = 1e-12;

// Runs all tasks once. A task waits for the tasks before it, then for its latency and a turn of its core, then works.
class Execution {
 public:
  Execution(const std::vector<Task>& tasks, std::vector<double> capacities, std::vector<Bucket> buckets,
            std::vector<double> saved, const std::vector<double>& switches_us)
      : tasks_(tasks),
        capacities_(std::move(capacities)),
        buckets_(std::move(buckets)),
        saved_(std::move(saved)),
        used_(capacities_.size(), 0),
        rates_(capacities_.size(), 0),
        bursts_(capacities_.size(), 0) {
    saved_.resize(capacities_.size(), 0);
    for (int r = 0; r < static_cast<int>(buckets_.size()); ++r) {
      saved_[r] = std::min(saved_[r], buckets_[r].size);
      if (buckets_[r].size > 0) with_bucket_.push_back(r);
    }
    for (const double switch_us : switches_us) cores_.push_back({switch_us});
    outcome_.tasks.resize(tasks.size());
    outcome_.work_start_us.resize(tasks.size());
    missing_.assign(tasks.size(), 0);
    has_turn_.assign(tasks.size(), false);
    followers_.resize(tasks.size());
    std::map<int, int> lane_tail;
    for (int i = 0; i < static_cast<int>(tasks.size()); ++i) {
      if (tasks[i].core >= 0) {
        Core& core = cores_[tasks[i].core];
        core.shared = core.shared || (core.holder >= 0 && core.holder != tasks[i].user);
        core.holder = tasks[i].user;  // until run(), the user of the last task
      }
      for (const int earlier : tasks[i].after) follow(earlier, i);
      if (tasks[i].lane < 0) continue;
      if (const auto tail = lane_tail.find(tasks[i].lane); tail != lane_tail.end()) follow(tail->second, i);
      lane_tail[tasks[i].lane] = i;
    }
    for (Core& core : cores_) core.holder = -1;
  }

  Outcome run() {
    for (int i = 0; i < static_cast<int>(tasks_.size()); ++i) {
      if (missing_[i] == 0) start(i);
    }
    while (!latent_.empty() || !working_.empty()) advance();
    check_all_ran();
    for (size_t r = 0; r < capacities_.size(); ++r) {
      const double busy = outcome_.end_us > 0 ? used_[r] / (capacities_[r] * outcome_.end_us) : 0;
      outcome_.busy_share.push_back(std::min(1.0, busy));  // with a bucket, more than the capacity may pass
    }
    outcome_.bucket_units = std::move(saved_);
    return std::move(outcome_);
  }

 private:
  struct Working {
    int task;
    double left_us;  // at speed 1
    double speed = 1;
  };
  using Latent = std::pair<double, int>;  // when its work begins, task
  struct Core {
    double switch_us;
    int holder = -1;              // the user that had the last turn; -1 = nobody yet
    int busy = 0;                 // tasks of the holder that work, or will after the switch
    double turn_start_us = 0;     // when the holder's turn begins, or began
    double idle_since_us = 0;     // when `busy` fell to 0
    bool shared = false;          // it has several users
    std::vector<int> ready = {};  // tasks that wait for a turn, first come first
  };

  void follow(int earlier, int task) {
    followers_[earlier].push_back(task);
    ++missing_[task];
  }

  void start(int task) {
    outcome_.tasks[task].start_us = now_;
    const int from = tasks_[task].latency_from;
    const double since = from < 0 ? now_ : outcome_.tasks[from].end_us;
    latent_.push({std::max(now_, since + tasks_[task].latency_us), task});
  }

  void end(int task) {
    outcome_.tasks[task].end_us = now_;
    outcome_.end_us = std::max(outcome_.end_us, now_);
    ++ended_;
    if (tasks_[task].core >= 0) {
      Core& core = cores_[tasks_[task].core];
      if (--core.busy == 0) core.idle_since_us = now_;
    }
    for (const int next : followers_[task]) {
      if (--missing_[next] == 0) start(next);
    }
  }

  // Moves the clock to the next moment at which a task begins or ends its work, or a bucket runs empty.
  void advance() {
    if (changed_) share_resources();
    double next = latent_.empty() ? -1 : latent_.top().first;
    for (const Working& w : working_) {
      const double done = now_ + w.left_us / w.speed;
      if (next < 0 || done < next) next = done;
    }
    next = std::min(next, first_empty());
    if (!std::isfinite(next)) {
      throw Error(Code::kBadConfig, "a simulation's clock ends before its tasks do: the next one of " +
                                        std::to_string(tasks_.size() - ended_) + " ends at " + format_number(next) +
                                        " us\n  fix: rates and times that machines have");
    }
    const double passed_us = next - now_;
    const size_t ended_before = ended_;
    now_ = next;
    fill_buckets(passed_us);
    std::vector<int> done;
    for (Working& w : working_) {
      w.left_us -= passed_us * w.speed;
      for (const Use& use : tasks_[w.task].uses) used_[use.resource] += use.rate * w.speed * passed_us;
      if (w.left_us <= kDoneUs + kDoneOfClock * now_) done.push_back(w.task);
    }
    if (!done.empty()) {
      std::erase_if(working_, [this](const Working& w) { return w.left_us <= kDoneUs + kDoneOfClock * now_; });
      changed_ = true;
    }
    for (const int task : done) end(task);
    do {
      while (!latent_.empty() && latent_.top().first <= now_) {
        const int task = latent_.top().second;
        latent_.pop();
        const int core = tasks_[task].core;
        if (core < 0 || has_turn_[task]) {
          start_work(task);
        } else {
          cores_[core].ready.push_back(task);
        }
      }
      for (Core& core : cores_) give_turns(core);
    } while (!latent_.empty() && latent_.top().first <= now_);
    count_idle_moments(passed_us > 0 || ended_ > ended_before);
  }

  // Refuses a clock that stands still while no task ends, as it would where rounding eats all progress.
  void count_idle_moments(bool progressed) {
    idle_moments_ = progressed ? 0 : idle_moments_ + 1;
    if (idle_moments_ <= 2 * tasks_.size() + 2 * capacities_.size()) return;
    throw Error(Code::kBadConfig, "a simulation stands still at " + format_number(now_) +
                                      " us: its times differ too much to add up\n  fix: rates and times that machines "
                                      "have");
  }

  void start_work(int task) {
    outcome_.work_start_us[task] = now_;
    if (tasks_[task].work_us <= kDoneUs) return end(task);
    working_.push_back({task, tasks_[task].work_us});
    changed_ = true;
  }

  void give_turns(Core& core) {
    if (core.ready.empty()) return;
    const auto of_holder = [&](int task) { return tasks_[task].user == core.holder; };
    if (core.busy == 0) {
      const bool first = core.holder < 0, holder_stays = std::any_of(core.ready.begin(), core.ready.end(), of_holder);
      const bool polled = core.shared && core.idle_since_us < now_;  // it tried its users in turn while idle
      if (!holder_stays) core.holder = tasks_[core.ready.front()].user;
      core.turn_start_us = now_ + (first ? 0 : polled ? core.switch_us / 2 : holder_stays ? 0 : core.switch_us);
    }
    std::erase_if(core.ready, [&](int task) {
      if (!of_holder(task)) return false;
      ++core.busy;
      has_turn_[task] = true;
      latent_.push({std::max(now_, core.turn_start_us), task});
      return true;
    });
  }

  void share_resources() {
    changed_ = false;
    std::vector<const std::vector<Use>*> uses;
    for (const Working& w : working_) uses.push_back(&tasks_[w.task].uses);
    std::vector<double> limits = capacities_;
    for (const int r : with_bucket_) {
      bursts_[r] = saved_[r] > residue(r);
      if (bursts_[r]) limits[r] = std::max(limits[r], buckets_[r].burst_rate);
    }
    const std::vector<double> speeds = fair_speeds(uses, limits);
    for (size_t i = 0; i < working_.size(); ++i) working_[i].speed = speeds[i];
    if (with_bucket_.empty()) return;
    rates_.assign(capacities_.size(), 0);
    for (const Working& w : working_) {
      for (const Use& use : tasks_[w.task].uses) rates_[use.resource] += use.rate * w.speed;
    }
  }

  // Returns the units that rounding may leave in an empty bucket.
  double residue(int r) const {
    return (kDoneUs + kDoneOfClock * now_) * std::max(capacities_[r], buckets_[r].burst_rate);
  }

  // Returns the units that a bucket gains each us; below zero it runs empty.
  double gain(int r) const { return capacities_[r] - rates_[r]; }

  // Returns the time in us at which the first bucket runs empty, if nothing else happens before.
  double first_empty() const {
    double first = std::numeric_limits<double>::infinity();
    for (const int r : with_bucket_) {
      if (bursts_[r] && gain(r) < 0) first = std::min(first, now_ + saved_[r] / -gain(r));
    }
    return first;
  }

  void fill_buckets(double passed_us) {
    for (const int r : with_bucket_) {
      saved_[r] = std::clamp(saved_[r] + gain(r) * passed_us, 0.0, buckets_[r].size);
      if (bursts_[r] && saved_[r] <= residue(r)) changed_ = true;
    }
  }

  void check_all_ran() const {
    if (ended_ == tasks_.size()) return;
    const auto stuck = std::find_if(missing_.begin(), missing_.end(), [](int missing) { return missing > 0; });
    throw Error(Code::kBadConfig, std::to_string(tasks_.size() - ended_) + " of " + std::to_string(tasks_.size()) +
                                      " tasks wait for each other in a circle; the first is task " +
                                      std::to_string(stuck - missing_.begin()));
  }

  const std::vector<Task>& tasks_;
  std::vector<double> capacities_;
  std::vector<Bucket> buckets_;
  std::vector<double> saved_, used_;
  std::vector<int> with_bucket_;
  std::vector<double> rates_;    // units in use each us, by resource; kept only where some resource has a bucket
  std::vector<uint8_t> bursts_;  // by resource: it may pass more than its capacity, since its bucket is not empty
  std::vector<int> missing_;
  std::vector<std::vector<int>> followers_;
  std::vector<Core> cores_;
  std::vector<uint8_t> has_turn_;  // by task
  std::priority_queue<Latent, std::vector<Latent>, std::greater<>> latent_;
  std::vector<Working> working_;
  bool changed_ = false;
  double now_ = 0;
  size_t ended_ = 0;
  size_t idle_moments_ = 0;  // moments since the clock last moved or a task last ended
  Outcome outcome_;
};

}  // namespace

int Engine::add_resource(std::string name, double capacity, Bucket bucket) {
  HERD_CHECK(capacity > 0, "resource " + name + " has capacity " + std::to_string(capacity));
  resources_.push_back({std::move(name), capacity, bucket});
  return static_cast<int>(resources_.size()) - 1;
}

int Engine::add_core(double switch_us) {
  HERD_CHECK(switch_us >= 0, "a switch takes " + std::to_string(switch_us) + " us");
  switches_us_.push_back(switch_us);
  return static_cast<int>(switches_us_.size()) - 1;
}

int Engine::add_task(Task task) {
  HERD_CHECK(task.core < static_cast<int>(switches_us_.size()) && task.user >= 0,
             "user " + std::to_string(task.user) + " of core " + std::to_string(task.core));
  HERD_CHECK(task.latency_us >= 0 && task.work_us >= 0,
             "a task lasts " + std::to_string(task.latency_us) + " + " + std::to_string(task.work_us) + " us");
  for (const Use& use : task.uses) {
    HERD_CHECK(use.resource >= 0 && use.resource < static_cast<int>(resources_.size()) && use.rate >= 0,
               "resource " + std::to_string(use.resource) + " at rate " + std::to_string(use.rate));
  }
  tasks_.push_back(std::move(task));
  return num_tasks() - 1;
}

Outcome Engine::run(std::vector<double> saved) const {
  for (int i = 0; i < num_tasks(); ++i) {
    for (const int earlier : tasks_[i].after) {
      HERD_CHECK(earlier >= 0 && earlier < num_tasks(),
                 "task " + std::to_string(i) + " follows " + std::to_string(earlier));
    }
    const std::vector<int>& after = tasks_[i].after;
    const int from = tasks_[i].latency_from;
    HERD_CHECK(from < 0 || std::find(after.begin(), after.end(), from) != after.end(),
               "task " + std::to_string(i) + " counts from " + std::to_string(from) + ", which it does not follow");
  }
  std::vector<double> capacities;
  std::vector<Bucket> buckets;
  for (const Resource& resource : resources_) {
    capacities.push_back(resource.capacity);
    buckets.push_back(resource.bucket);
  }
  return Execution(tasks_, std::move(capacities), std::move(buckets), std::move(saved), switches_us_).run();
}

}  // namespace herd::sim
