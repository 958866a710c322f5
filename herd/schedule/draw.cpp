#include "herd/schedule/draw.h"

#include <map>

#include "herd/base/units.h"
#include "herd/schedule/dependencies.h"
#include "herd/schedule/names.h"

namespace herd {
namespace {

std::string lane_name(const LaneId& lane) {
  switch (lane.kind) {
    case LaneKind::kLocal:
      return "local";
    case LaneKind::kSend:
      return "to " + std::to_string(lane.peer);
    case LaneKind::kReceive:
      return "from " + std::to_string(lane.peer);
    case LaneKind::kWait:
      return "wait for " + std::to_string(lane.peer);
  }
  return "";
}

}  // namespace

sim::Timeline timeline_of(std::span<const Schedule> all, const ScheduleTimes& times) {
  sim::Timeline timeline;
  const Schedule& s = all[0];
  timeline.title = std::string(collective_name(s.collective)) + " by " + s.algorithm + ", " +
                   format_bytes(static_cast<double>(s.elements * size_of(s.dtype))) + ", " +
                   std::to_string(s.num_ranks) + (s.num_ranks == 1 ? " rank: " : " ranks: ") + format_us(times.end_us);
  for (const Schedule& own : all) {
    std::map<LaneId, int> rows;
    for (const Step& step : own.steps) rows.try_emplace(lane_of(step), 0);
    for (auto& [lane, row] : rows) {
      row = static_cast<int>(timeline.rows.size());
      timeline.rows.push_back({"rank " + std::to_string(own.self), lane_name(lane)});
    }
    for (size_t i = 0; i < own.steps.size(); ++i) {
      const Step& step = own.steps[i];
      const sim::TaskTime& time = times.steps[own.self][i];
      timeline.spans.push_back({rows[lane_of(step)], std::string(step_kind_name(step.kind)),
                                std::string(step_kind_name(step.kind)), time.start_us, time.end_us,
                                "step " + std::to_string(i) + ": " + describe(step)});
    }
  }
  return timeline;
}

}  // namespace herd
