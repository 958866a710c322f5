// Which algorithm serves a collective best: every candidate with its predicted time, the fastest one, and why.
// Pure and deterministic: rank 0 chooses on the topology that the run stores, and tells the others.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/collectives/registry.h"
#include "herd/topology/topology.h"

namespace herd {

struct Candidate {
  AlgorithmInfo algorithm;
  std::string why_not;     // empty = it can serve the request; else the numbers below are 0
  double us = 0;           // predicted, until the last rank is done
  int64_t bytes_sent = 0;  // of the rank that sends most; a direct algorithm's reads and writes of peers' memory count
  int messages = 0;        // of the same rank: messages and signals
  std::string busiest;     // the resource that is used most, "memory 97 %"
};

struct Choice {
  std::vector<Candidate> candidates;  // fastest first, then those that can't
  std::string algorithm;
  std::string reason;  // one line
};

// Up to this many ranks all of them are simulated; beyond, the busiest of a few ranks' own steps are added up.
inline constexpr int kMaxSimulatedRanks = 32;

// Throws kBadConfig if the topology has other ranks than the request, or the numbers make no sense. request.self is
// ignored. Of two that are equally fast the first in the registry wins.
Choice choose(const CollectiveRequest& request, const Topology& topology);

}  // namespace herd
