// Defines what the groups of one rank share: its transport, its engine and its symmetric memory.
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/store.h"
#include "herd/comm/group_state.h"
#include "herd/comm/progress_engine.h"
#include "herd/comm/region_table.h"
#include "herd/comm/world_facts.h"
#include "herd/transport/transport.h"

namespace herd::comm {

class Communicator;

struct Context {
  std::shared_ptr<Store> store;  // may be null; outlives the other members
  bool shows_status = false;     // the control plane reads in the store what this rank does
  std::shared_ptr<transport::Transport> transport;
  std::shared_ptr<RegionTable> regions = std::make_shared<RegionTable>();
  std::shared_ptr<ProgressEngine> engine;
  std::atomic<uint64_t> next_group{2};    // id of the next group; the world is 1
  std::mutex names_mutex;                 // guards the next one
  std::map<std::string, uint64_t> names;  // groups made so far of one name and the same members
  std::shared_ptr<WorldFacts> facts = std::make_shared<WorldFacts>();
  // Returns the source of schedules for a group of these ranks of the transport.
  std::function<ScheduleSource(std::vector<Rank> members)> schedules = [facts = facts](std::vector<Rank> members) {
    return default_schedules(facts, std::move(members));
  };
};

// Gives tests and benches the internals of a Communicator.
struct CommunicatorTestAccess {
  static GroupState& group(Communicator& communicator);
  static Context& context(Communicator& communicator);
  // Names the algorithm of the last collective begun; REQUIRES one.
  static std::string last_algorithm(Communicator& communicator);
  static Communicator make(std::shared_ptr<transport::Transport> transport, ScheduleSource schedules);
};

}  // namespace herd::comm
