// Defines the facts on which all ranks of a world choose algorithms. Rank 0 finds them and tells the others before
// their first operation, so that all choose alike. Threads: plain data.
#pragma once

#include <optional>
#include <string>

#include "herd/collectives/tuning.h"
#include "herd/comm/group_state.h"
#include "herd/topology/topology.h"

namespace herd::comm {

struct WorldFacts {
  Host host = {};                // rank 0's host: the cores of its ranks, and its memory, measured and rounded
  Link between = Host().uplink;  // the slowest link between hosts, measured and rounded
  Tuning tuning = {};            // measured choices, which override the model
  // Holds the topology of all ranks of the world that a user gave; it replaces what was found.
  std::optional<Topology> topology = {};
};

// Holds what a user gives rank 0; both may be empty.
struct GivenFacts {
  std::string tuning_file = {};  // a file of docs/formats/tuning.md
  std::string topology = {};     // a file of docs/formats/topology.md, or a preset's name
};

// Collective over the world; rank 0's `given` counts. Throws kBadConfig or kCorruptFile on every rank for a file that
// can't be read, or a topology of other ranks or hosts (topology/load_topology.h). It ignores a tuning file of another
// machine, with a line in the log. Throws the group's error where a rank is lost.
void share_facts(GroupState& world, const GivenFacts& given, WorldFacts& facts);

}  // namespace herd::comm
