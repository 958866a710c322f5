// Builds the two halves of the circulant algorithm, for any number of ranks n. Each skip is half of the one before,
// rounded up: s = ceil(s' / 2), from s' = n down to s = 1. Block i of rank r is part r+i (mod n).
//   reduce-scatter  round (s', s): sends blocks [s, s') to rank r+s, adds what arrives to blocks [0, s'-s)
//   all-gather      the same rounds backwards, directions turned
//   Each: ceil(log2 n) rounds, exactly (n-1)/n * S bytes sent per rank; a round is two messages where its blocks pass
//   over rank n-1 to 0.
// Source: Traff 2025, doi:10.34726/10760, and Traff 2024, arXiv:2410.14234.   Threads: pure.
#pragma once

#include "herd/schedule/builder.h"

namespace herd {

// Says where partial sums are kept.
enum class CirculantSums : uint8_t {
  kOutput,   // the output has room for every part (all-reduce; reduce-scatter in place)
  kScratch,  // scratch of half the message holds them
};

// Leaves the sum of part self, complete, at output(part(self)). REQUIRES num_ranks > 1.
void circulant_reduce_scatter(Builder& builder, CirculantSums sums);

// Fills every part of the output from its owner's output(part(owner)). REQUIRES num_ranks > 1.
void circulant_all_gather(Builder& builder);

// Returns the skips 1 < ... < n, each the half of the next, rounded up; n itself is left out.
std::vector<int> circulant_skips(int num_ranks);

}  // namespace herd
