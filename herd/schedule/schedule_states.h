// Follows what each rank holds while a collective runs, round by round, as the tables of textbooks do: ranks are
// columns, chunks of the message rows, and a cell says whose contributions are in. In a round every message that may
// move does, and every slice of a peer that may be read or written is; steps of a rank's own memory take no round.
// Threads: pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/schedule/schedule.h"

namespace herd {

struct ScheduleStates {
  struct Chunk {
    int64_t begin = 0, end = 0;  // elements of the message
    Rank from = -1;              // of all_to_all: the rank whose input it is
  };
  using Cell = std::vector<Rank>;                // ranks whose contributions are in, ascending; empty = holds nothing
  using Table = std::vector<std::vector<Cell>>;  // by chunk and rank

  Collective collective = Collective::kAllReduce;
  std::string algorithm = {};
  int num_ranks = 1;
  std::vector<Chunk> chunks = {};
  std::vector<Table> rounds = {};  // rounds[0] is before the first
};

// A rank holds the most complete copy of a chunk that lies anywhere in its memory. REQUIRES schedules of all ranks in
// which verify() finds nothing.
ScheduleStates states_of(std::span<const Schedule> all_ranks);

// Returns "0+2", "all" for a sum over all ranks, "." for nothing.
std::string cell_text(const ScheduleStates& states, const ScheduleStates::Cell& cell);
// Returns "elements 0..3", "rank 1, elements 0..3".
std::string chunk_text(const ScheduleStates::Chunk& chunk);

// Returns a table for each round, one below the other.
std::string states_text(const ScheduleStates& states);
// Draws the tables side by side; a cell is the darker the more contributions are in.
std::string states_svg(const ScheduleStates& states);

}  // namespace herd
