// Builds the two halves of the ring: every rank sends to the next one and receives from the previous one.
//   Each: n-1 steps, (n-1)/n * S bytes sent per rank (n ranks, S message bytes).
//   Order: part c is summed over ranks c+1, c+2, .., c (mod n), so every run gives the same bits.
// Source: Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002.   Threads: pure.
#pragma once

#include "herd/schedule/builder.h"

namespace herd {

// Says where partial sums are kept until their next hop.
enum class RingSums : uint8_t {
  kOutput,   // the output has room for every part (all-reduce; reduce-scatter in place)
  kScratch,  // two scratch slots of one part each hold them
};

// Leaves the sum of part self, complete, at output(part(self)). REQUIRES num_ranks > 1.
void ring_reduce_scatter(Builder& builder, RingSums sums);

// Fills every part of the output from its owner's output(part(owner)). REQUIRES num_ranks > 1.
void ring_all_gather(Builder& builder);

}  // namespace herd
