// Defines what a collective algorithm is asked for, by one rank. Every rank of the group asks the same but for `self`.
// Threads: plain data.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "herd/schedule/builder.h"
#include "herd/schedule/schedule.h"

namespace herd {

struct CollectiveRequest {
  Collective collective = Collective::kAllReduce;
  Rank self = 0;
  int num_ranks = 1;
  Rank root = 0;                     // broadcast, reduce, gather, scatter; ignored elsewhere
  int64_t elements = 0;              // of the whole message, as schedule.h defines it
  std::vector<int64_t> counts = {};  // uneven parts (the "v" forms), as schedule.h defines them; empty = equal parts
  DType dtype = DType::kF32;
  int64_t segment_bytes = 0;  // bytes of a segment, where an algorithm has them (segments.h); 0 = by the message's size
  bool in_place = false;
  bool direct = false;     // the caller's input and output are symmetric memory that all peers on the host map
  bool same_host = false;  // all ranks share a host, so there is stage memory, and signals work
  // Where ranks run, for the composed algorithms (composed.h); both may be empty.
  std::vector<int> hosts = {};  // host of each rank: those of one host have stage memory and signals among them
  // Sizes of the grid's axes, that of neighbouring ranks first (grid.h); their product is num_ranks.
  std::vector<int> grid = {};
  int64_t bytes() const { return elements * size_of(dtype); }
};

// Returns a builder for the request, named after the algorithm. Throws kBadConfig for a negative size, and for a rank,
// root or counts that do not fit num_ranks and `elements`.
Builder builder_for(const CollectiveRequest& request, std::string_view algorithm);

// Returns the request for another message size, with counts in the same proportions.
CollectiveRequest resized(CollectiveRequest request, int64_t elements);

// Writes the whole schedule where no peer is needed: nothing for an empty message, the copy of the input for one rank.
// Returns false, and writes nothing, where ranks have to meet.
bool build_if_alone(Builder& builder);

}  // namespace herd
