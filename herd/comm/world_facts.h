// What all ranks of a world choose algorithms on. Rank 0 finds it out and tells the others before their first
// operation, so that all choose alike.
#pragma once

#include <string>

#include "herd/collectives/tuning.h"
#include "herd/comm/group_state.h"
#include "herd/topology/topology.h"

namespace herd::comm {

struct WorldFacts {
  int cores = 1;                 // that the ranks of rank 0's host have
  Link between = Host().uplink;  // of the hosts: the slowest link, measured, rounded
  Tuning tuning = {};            // what was measured overrides the model
};

// Collective over the world. `tuning_file` (of rank 0; may be empty) as docs/formats/tuning.md has it: one that can't
// be read throws kBadConfig or kCorruptFile on every rank, one of another machine is left out with a line in the log.
// Throws the group's error where a rank is lost.
void share_facts(GroupState& world, const std::string& tuning_file, WorldFacts& facts);

}  // namespace herd::comm
