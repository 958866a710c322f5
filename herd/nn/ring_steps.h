// Says what each rank computes in each step of a ring of attention over P ranks, whose tokens lie in a zigzag
// (token_cut.h): in step s rank r has the keys and values of rank r - s, its own in step 0.
//   Of S tokens a rank, all with a query, a causal first step has S^2/2 pairs of tokens and each later one S^2/2,
//   whichever rank it is: keys of a rank before it are seen by all of its queries in their first half alone, those of a
//   rank behind it by the second half of its queries.
// Over all ranks and steps each pair of tokens that the mask allows is there once. Keys of padding are seen by queries
// of padding alone, or by none. What passes on goes to rank r + 1: keys and values after each step but the last, and in
// backward the sum of their gradients after each step, so that the last one brings it home.   Threads: pure.   Source:
// Brandon et al. 2023, arXiv:2311.09431.
#pragma once

#include "herd/nn/token_cut.h"

namespace herd::nn {

// Names a range of this rank's queries that meets a range of the step's keys, by where they lie among their rank's.
// Causal: both ranges are the same tokens, and each sees those up to itself. `row` is the sequence of the micro-batch;
// -1 = all of them.
struct RingPairs {
  int64_t query = 0, queries = 0, key = 0, keys = 0;
  bool causal = false;
  int64_t row = -1;
  bool operator==(const RingPairs&) const = default;
};

struct RingStep {
  int owner = 0;  // place of the rank whose keys and values these are
  std::vector<RingPairs> pairs;
  bool passes_keys = false, passes_gradients = false;
};

// Returns the steps of the rank at cut.place, cut.parts of them. REQUIRES a zigzag.
std::vector<RingStep> ring_steps(const TokenCut& cut, bool causal);
// Returns the steps of B packed sequences, where no pair is of two documents (documents.h).
std::vector<RingStep> ring_steps_of_documents(const TokenCut& cut, bool causal, const std::vector<int64_t>& begins,
                                              int64_t B);

// Returns the cut of the rank at another place.
TokenCut cut_of(TokenCut cut, int place);

}  // namespace herd::nn
