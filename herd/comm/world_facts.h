// Defines what all ranks of a world choose algorithms on. Rank 0 finds it out and tells the others before their first
// operation, so that all choose alike.
#pragma once

#include <optional>
#include <string>

#include "herd/collectives/tuning.h"
#include "herd/comm/group_state.h"
#include "herd/topology/topology.h"

namespace herd::comm {

struct WorldFacts {
  Host host = {};                         // as rank 0's: the cores its ranks have, and its memory, measured, rounded
  Link between = Host().uplink;           // of the hosts: the slowest link, measured, rounded
  Tuning tuning = {};                     // what was measured overrides the model
  std::optional<Topology> topology = {};  // of all ranks of the world, where a user gave it: in place of what was found
};

// What a user gives rank 0; both may be empty.
struct GivenFacts {
  std::string tuning_file = {};  // of docs/formats/tuning.md
  std::string topology = {};     // a file of docs/formats/topology.md, or a preset's name
};

// Collective over the world; what rank 0 is given counts. What can't be read, and a topology of other ranks or hosts
// (topology/load_topology.h), throws kBadConfig or kCorruptFile on every rank; a tuning file of another machine is left
// out with a line in the log. Throws the group's error where a rank is lost.
void share_facts(GroupState& world, const GivenFacts& given, WorldFacts& facts);

}  // namespace herd::comm
