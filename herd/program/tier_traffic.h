// Tells what a rank moves between its tiers in a step, how fast, and how much of it is hidden: spans of a timeline,
// predicted or measured, beside the bytes that the Program says.
//   rate = bytes / time in which at least one such copy runs
//   hidden = time in which passes run beside copies / time of copies
// Threads: pure.
#pragma once

#include <string_view>
#include <vector>

#include "herd/program/program.h"
#include "herd/sim/timeline.h"

namespace herd::program {

struct TierTraffic {
  std::string_view way;  // "host to device"
  int64_t bytes = 0;     // of a step
  double busy_us = 0;    // time in which such copies run; 0 = the timeline has none of them
  double hidden_us = 0;  // part of it in which the compute lane runs, too
};

// Returns a row for each way in which `step` copies: between host and device, and between files and host. The timeline
// is of the same step, with the lanes of step.rank under "rank N".
std::vector<TierTraffic> tier_traffic(const Program& step, const sim::Timeline& timeline);

}  // namespace herd::program
