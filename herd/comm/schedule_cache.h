// ScheduleCache builds and compiles the schedules of a group, once per distinct request.
// Threads: the group's calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/request.h"
#include "herd/comm/communicator.h"
#include "herd/comm/compiled_schedule.h"
#include "herd/topology/topology.h"

namespace herd::comm {

// Builds the schedule of a request; `algorithm` is empty where the group chooses.
using ScheduleSource = std::function<Schedule(std::string_view algorithm, const CollectiveRequest& request)>;

struct CachedSchedule {
  CollectiveRequest request;
  std::string asked;  // algorithm that the caller named, or empty
  CompiledSchedule compiled;
  uint64_t uses = 0;  // operations that were prepared with it
  uint64_t hash = 0;  // hash of all that ranks must agree on, but for the reduce op, the name and the sequence
};

class ScheduleCache {
 public:
  ScheduleCache(ScheduleSource source, int64_t stage_bytes);
  // Returns a schedule, valid until clear(). Throws kBadConfig for an unknown or impossible algorithm.
  CachedSchedule& get(std::string_view algorithm, const CollectiveRequest& request);
  size_t size() const { return schedules_.size(); }
  void clear();
  // Lists what ran so far, whatever was cleared since; ordered by collective, bytes, algorithm.
  std::vector<AlgorithmUse> uses() const;

 private:
  ScheduleSource source_;
  int64_t stage_bytes_;
  std::vector<AlgorithmUse> cleared_;
  std::list<CachedSchedule> schedules_;  // the last used one first
};

struct WorldFacts;

// Returns the topology that a group of these ranks of the world chooses on: their part of the given one, else ranks by
// the number of their host. Where `hosts` is empty, all are on one host.
Topology topology_of(const std::vector<Rank>& members, const std::vector<int>& hosts, const WorldFacts& facts);

// Returns the source of herd's algorithms for a group of these ranks of the world. Where the caller names none, it
// takes the one measured to be the fastest, or that collectives/choose.h predicts to be. All ranks have the same facts
// before their first operation, so they choose alike.
ScheduleSource default_schedules(std::shared_ptr<const WorldFacts> facts, std::vector<Rank> members);

}  // namespace herd::comm
