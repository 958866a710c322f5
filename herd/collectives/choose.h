// Decides which algorithm serves a collective best: every candidate with its predicted time, the fastest one, and why.
// Pure and deterministic: rank 0 chooses on the topology that the run stores, and tells the others.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/registry.h"
#include "herd/collectives/tuning.h"
#include "herd/schedule/cost.h"
#include "herd/topology/topology.h"

namespace herd {

struct Candidate {
  AlgorithmInfo algorithm;
  std::string why_not;     // empty = it can serve the request and is timed; else the numbers below are 0
  double us = 0;           // predicted, of the rank that takes longest
  int64_t bytes_sent = 0;  // of the rank that sends most; a direct algorithm's reads and writes of peers' memory count
  int messages = 0;        // of the same rank: messages and signals
  int rounds =
      0;  // if asked for: messages and signals that follow each other; beyond kMaxSimulatedRanks those of one rank
  // What a rank sends inside its host, to other hosts, above the first tier of switches, .. (topology.h: distance); for
  // each the most of any rank. As many as num_distances().
  std::vector<int64_t> bytes_by_distance = {};
  std::string busiest = {};  // the resource that is used most, "memory 97 %"
};

struct Choice {
  std::vector<Candidate> candidates;  // fastest first, then those that can't
  std::string algorithm;
  std::string reason;  // one line
};

struct ChooseOptions {
  // Inside of one host the algorithms of messages are left out but for the first of the table: shared memory serves
  // better, and each costs time to simulate. true: time them all the same (they are never chosen there).
  bool time_all = false;
  bool count_rounds = false;  // fill in Candidate::rounds, which takes as long as the rest for long staged messages
  const Tuning* tuning = nullptr;  // what was measured overrides the model; borrowed
};

// Up to this many ranks all of them are simulated; beyond, the busiest of a few ranks' own steps are added up.
inline constexpr int kMaxSimulatedRanks = 32;

// The request with the topology's hosts and grid filled in, for compositions. Between several hosts there is no
// same_host; on one it stays what it was (without it ranks have messages alone).
CollectiveRequest placed_on(CollectiveRequest request, const Topology& topology);

// Throws kBadConfig if the topology has other ranks than the request, or the numbers make no sense. request.self, hosts
// and grid are ignored: build the schedule from placed_on(request, topology). request.segment_bytes counts for the
// algorithms that have segments. Of two that are equally fast the first in the registry wins.
Choice choose(const CollectiveRequest& request, const Topology& topology, ChooseOptions options = {});

// What choose() predicts for one algorithm, microseconds. Throws kBadConfig where it can't serve the request.
double predict_us(std::string_view algorithm, const CollectiveRequest& request, const Topology& topology);

}  // namespace herd
