// Lists every algorithm by name. A new one needs a file of its own and a line of the table in registry.cpp.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "herd/collectives/request.h"
#include "herd/schedule/schedule_names.h"

namespace herd {

enum class Needs : uint8_t {
  kMessages,         // any transport
  kStage,            // ordinary memory, all ranks on one host
  kSymmetricMemory,  // the caller's buffers are mapped by all peers
};

struct AlgorithmInfo {
  Collective collective;
  std::string_view name;
  Needs needs;
  std::string_view description;  // in one line
  // Returns how many messages carry one segment from the first rank of a pipeline to the last, one after the other.
  // Null where segments form no such pipeline along the whole group.
  int (*depth)(int num_ranks) = nullptr;
  bool has_segments = false;  // true: it cuts messages as segments.h does and obeys request.segment_bytes
};

// Returns the algorithms of a collective in the order of the table.
std::vector<AlgorithmInfo> algorithms(Collective collective);

// Returns the table's name of an algorithm that has another name, too: all_reduce "butterfly" (of lectures) is
// "recursive_doubling", "rabenseifner" is "halving_doubling", "tree" is "binomial_tree", "path" is "chain". Returns
// other names as they are.
std::string_view canonical_name(Collective collective, std::string_view algorithm);

// Lists the algorithms of a collective that cut messages into segments: "binomial_tree, chain", or "none".
std::string names_with_segments(Collective collective);
bool has_segments(Collective collective, std::string_view algorithm);

// Returns why this algorithm cannot serve this request; empty if it can.
std::string why_not(const AlgorithmInfo& algorithm, const CollectiveRequest& request);

// Returns the steps of request.self. Throws kBadConfig with the valid names where the name is unknown, or where
// request.segment_bytes asks for segments that the algorithm lacks. Throws it with the reason where why_not() has one.
Schedule build_schedule(std::string_view algorithm, const CollectiveRequest& request);

}  // namespace herd
