// Derives the order that the slices of a schedule imply, as schedule.h defines it. Within a lane steps run in order,
// between lanes they wait for hazards on overlapping slices. The executor, the verifier and the cost model all follow
// this one function.
//   Cost: about (slices + cuts) * log(cuts), where cuts are the distinct ends of slices, whatever the number of
//   elements.   Threads: pure.
#pragma once

#include <compare>
#include <vector>

#include "herd/schedule/schedule.h"

namespace herd {

enum class LaneKind : uint8_t { kLocal, kSend, kReceive, kWait };

struct LaneId {
  LaneKind kind = LaneKind::kLocal;
  Rank peer = -1;  // -1 for kLocal
  auto operator<=>(const LaneId&) const = default;
};

LaneId lane_of(const Step& step);

// Returns for each step the earlier steps that must be done before it starts, ascending. It leaves out edges that
// others imply: at most one is left per lane, and none that is reached through another.
std::vector<std::vector<int>> derive_dependencies(const Schedule& schedule);

}  // namespace herd
