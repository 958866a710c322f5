#include "herd/program/tier_traffic.h"

#include "herd/program/lane_times_internal.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"

namespace herd::program {
std::vector<TierTraffic> tier_traffic(const Program& step, const sim::Timeline& timeline) {
  struct Way {
    Lane lane;
    OpKind kind;
    std::string_view name;
  };
  constexpr Way kWays[] = {{Lane::kCopyOut, OpKind::kEvict, "device to host"},
                           {Lane::kCopyIn, OpKind::kFetch, "host to device"},
                           {Lane::kIo, OpKind::kEvict, "host to files"},
                           {Lane::kIo, OpKind::kFetch, "files to host"}};
  TimeRanges passes;  // read off where something moves: most steps that a search simulates have no copies
  std::vector<TierTraffic> out;
  for (const Way& way : kWays) {
    TierTraffic traffic{.way = way.name};
    for (const Op& op : step.ops) {
      if (op.lane != way.lane || op.kind != way.kind) continue;
      traffic.bytes += copied_bytes(step, op);
    }
    if (traffic.bytes == 0) continue;
    if (passes.empty()) passes = times_of(timeline, step.rank, Lane::kCompute);
    const TimeRanges copies = times_of(timeline, step.rank, way.lane,
                                       [&](const sim::Span& span) { return span.category == op_name(way.kind); });
    traffic.busy_us = length(copies);
    traffic.hidden_us = common_length(copies, passes);
    out.push_back(traffic);
  }
  return out;
}

}  // namespace herd::program
