// Simulates events for schedules and for programs. Tasks have dependencies, lanes run their tasks first in, first out,
// and running tasks share resources (cores, the memory bus, a host's uplink).
//
// A task first waits `latency_us`, which uses nothing, then works. At speed 1 its work lasts `work_us` and uses each of
// its resources at the stated rate. Where a resource is short, the tasks on it slow down alike: speeds are max-min fair
// (progressive filling). So c tasks of one core each on k < c cores run at speed k/c. Others get what a slow task
// leaves unused elsewhere.
//
//   Engine engine;
//   const int bus = engine.add_resource("memory bus", 12'000);            // bytes per us
//   const int a = engine.add_task({.lane = 0, .work_us = 100, .uses = {{bus, 8'000}}});
//   const int b = engine.add_task({.lane = 1, .latency_us = 2, .work_us = 50, .uses = {{bus, 8'000}}, .after = {a}});
//   Outcome outcome = engine.run();                                      // times, busy shares
//
// Users may take turns on a core: while tasks of one user can work, those of other users wait. The next user begins
// after the time that a switch takes.
//
// A resource with a token bucket passes more while it has savings, as links do that let bursts pass. Savings are what
// it could have passed and did not, up to the bucket's size.
//
// The same input gives the same output, bit for bit.   Threads: one at a time.
#pragma once

#include <string>
#include <vector>

namespace herd::sim {

// Says that a task uses a resource while it works.
struct Use {
  int resource = 0;
  double rate = 0;  // units per us at speed 1
};

struct Task {
  int lane = -1;  // any number >= 0; -1 = no lane
  double latency_us = 0;
  // Task, one of `after`, from whose end the latency runs; -1 = from when dependencies and lane let this task start.
  int latency_from = -1;
  double work_us = 0;  // time of its work, alone with its resources
  std::vector<Use> uses = {};
  std::vector<int> after = {};  // earlier or later tasks that must end first
  int core = -1;                // core on which it works in its user's turns; -1 = at once
  int user = 0;                 // user of the core, any number >= 0
};

struct Bucket {
  double size = 0;        // units that it saves at most; 0 = none
  double burst_rate = 0;  // units per us while it has savings; no less than the resource's capacity
};

struct TaskTime {
  double start_us = 0;  // when its dependencies and its lane let it
  double end_us = 0;
  bool operator==(const TaskTime&) const = default;
};

struct Outcome {
  std::vector<TaskTime> tasks;        // by the index that add_task returned
  std::vector<double> work_start_us;  // time at which the work of each began: after its latency, in its user's turn
  std::vector<double> busy_share;     // per resource: used share of capacity * end_us, 0 .. 1
  std::vector<double> bucket_units;   // per resource: units that its bucket has at the end
  double end_us = 0;                  // end of the last task
};

class Engine {
 public:
  // Capacity is in units per us. REQUIRES capacity > 0.
  int add_resource(std::string name, double capacity, Bucket bucket = {});
  // Adds a core whose users take turns. A user that finds the core idle starts half a switch later, as it would on
  // average, since users are polled in turn.
  int add_core(double switch_us);
  // Throws kBug for a negative time, an unknown resource or core.
  int add_task(Task task);
  int num_tasks() const { return static_cast<int>(tasks_.size()); }
  const std::string& resource_name(int resource) const { return resources_[resource].name; }

  // Runs all tasks. `bucket_units` are those of each bucket at the beginning, as an Outcome holds them; empty = none.
  // Throws kBadConfig with a task where tasks wait for each other in a circle (dependencies and lanes together), and
  // where times are so long, or differ so much, that the clock can't count them.
  Outcome run(std::vector<double> bucket_units = {}) const;

 private:
  struct Resource {
    std::string name;
    double capacity;
    Bucket bucket;
  };
  std::vector<Resource> resources_;
  std::vector<double> switches_us_;  // per core
  std::vector<Task> tasks_;
};

}  // namespace herd::sim
