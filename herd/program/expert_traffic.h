// Tells what a rank sends to the ranks of other experts in a step, how long that takes, and how much of it is hidden:
// spans of a timeline, predicted or measured, beside bytes, those of a uniform router or counted ones.
//   hidden = time in which passes run beside exchanges / time of exchanges
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "herd/program/program.h"
#include "herd/sim/timeline.h"

namespace herd::program {

// What an exchange moves, in the order of a step.
enum class ExpertWay { kCounts, kRows, kOutputs, kOutputGradients, kRowGradients };
inline constexpr int kNumExpertWays = 5;
using ExpertBytes = std::array<int64_t, kNumExpertWays>;  // by way
// Returns the way of an op that tells counts of rows or moves rows; nothing of another.
std::optional<ExpertWay> expert_way(const Op& op);
std::string_view way_name(ExpertWay way);  // returns "rows to experts"

struct ExpertTraffic {
  ExpertWay way = ExpertWay::kCounts;
  int64_t bytes = 0;     // that the rank sends in a step
  double busy_us = 0;    // time in which such exchanges run, waiting for other ranks included
  double hidden_us = 0;  // part of it in which the compute lane runs, too
};

// Returns a row for each way in which `step` moves anything. The timeline is of the same step, with the lanes of
// step.rank under "rank N". Without `counted`, bytes are those of a uniform router, of which each row goes by itself.
std::vector<ExpertTraffic> expert_traffic(const Program& step, const sim::Timeline& timeline,
                                          const ExpertBytes* counted = nullptr);

}  // namespace herd::program
