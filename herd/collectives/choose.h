// Decides which algorithm serves a collective best: every candidate with its predicted time, the fastest one, and why.
// Pure and deterministic: rank 0 chooses on the topology that the run stores, and tells the others.
// Threads: pure.
#pragma once

#include <functional>
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
  std::string why_not;     // why it cannot serve the request, and the numbers below are 0; empty = it can, and is timed
  double us = 0;           // predicted time of the rank that takes longest
  int64_t bytes_sent = 0;  // of the rank that sends most; a direct algorithm's reads and writes of peers' memory count
  int messages = 0;        // messages and signals of the same rank
  // Messages and signals that follow each other; beyond kMaxSimulatedRanks those of one rank. 0 unless count_rounds.
  int rounds = 0;
  // Bytes that a rank sends inside its host, to other hosts, above the first tier of switches, .. (topology.h:
  // distance), each of the rank that sends most there. Has num_distances() entries.
  std::vector<int64_t> bytes_by_distance = {};
  std::string busiest = {};  // the resource that is used most: "memory 97 %"
};

struct Choice {
  std::vector<Candidate> candidates;  // fastest first, then those that cannot serve the request
  std::string algorithm;              // the fastest, or the one that was measured to be
  std::string reason;                 // why, in one line
};

struct ChooseOptions {
  // Also times algorithms that send messages for groups inside one host. Without it only the first of them in the
  // registry is timed there: shared memory serves better, and each costs time to simulate. The others are never chosen
  // there.
  bool time_all = false;
  // Fills in Candidate::rounds, which doubles the time that choose() takes for long staged messages.
  bool count_rounds = false;
  const Tuning* tuning = nullptr;  // measured choices that override the model; borrowed
  // Is told the name of each algorithm before it is timed, which of many ranks takes seconds.
  std::function<void(std::string_view algorithm)> report = {};
};

// Up to this many ranks all are simulated; of more, the steps of a few ranks are added up, and the busiest one counts.
inline constexpr int kMaxSimulatedRanks = 32;

// Returns the request with the topology's hosts and grid filled in, for the composed algorithms (composed.h). Where
// there are several hosts it clears same_host; on one host it keeps it (a request without same_host may use messages
// only).
CollectiveRequest placed_on(CollectiveRequest request, const Topology& topology);

// Chooses the algorithm for a request. Throws kBadConfig if the topology has other ranks than the request, or as
// builder_for() (request.h). request.self, hosts and grid are ignored: build the schedule from placed_on(request,
// topology). request.segment_bytes counts for the algorithms that have segments. Of two that are equally fast the first
// in the registry wins.
Choice choose(const CollectiveRequest& request, const Topology& topology, ChooseOptions options = {});

// Returns what choose() predicts for one algorithm, in microseconds. Throws kBadConfig where it cannot serve the
// request.
double predict_us(std::string_view algorithm, const CollectiveRequest& request, const Topology& topology);

}  // namespace herd
