// Every algorithm by name. Adding one: its file, and one line of the table in registry.cpp.
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
  std::string_view description;  // one line
  // Pipelines: messages that follow each other from the first rank to the last, for one segment. Null where a rank's
  // own messages are as many.
  int (*depth)(int num_ranks) = nullptr;
  bool segments = false;  // cuts messages as segments.h does, so that request.segment_bytes is for it
};

// The algorithms of a collective, in the order of the table.
std::vector<AlgorithmInfo> algorithms(Collective collective);

// The name in the table of an algorithm that is also known by another: all_reduce "butterfly" (lectures) is
// "recursive_doubling", "path" is "chain". Other names come back as they are.
std::string_view canonical_name(Collective collective, std::string_view algorithm);

// The algorithms of a collective that cut messages into segments: "binomial_tree, chain", or "none".
std::string names_with_segments(Collective collective);
bool has_segments(Collective collective, std::string_view algorithm);

// Why this algorithm can't serve this request; empty if it can.
std::string why_not(const AlgorithmInfo& algorithm, const CollectiveRequest& request);

// The steps of request.self. Throws kBadConfig, listing the valid names, for an unknown one, and for one without
// segments where request.segment_bytes asks for some; and with the reason where why_not() has one.
Schedule build_schedule(std::string_view algorithm, const CollectiveRequest& request);

}  // namespace herd
