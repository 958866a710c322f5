#include "herd/schedule/draw_schedule.h"

#include <map>

#include "herd/base/units.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/step_dependencies.h"
#include "herd/schedule/structure_internal.h"

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

// A picture of more arrows than this gets none, since they would hide each other.
constexpr size_t kMaxArrows = 400;

// Adds an arrow from the end of each send or signal to the end of the matching step.
void add_links(std::span<const Schedule> all, const ScheduleTimes& times, sim::Timeline& timeline) {
  const auto matching_steps = match_steps(all);
  std::vector<int> first_span;
  int spans = 0;
  for (const Schedule& schedule : all) {
    first_span.push_back(spans);
    spans += static_cast<int>(schedule.steps.size());
  }
  const auto row = [&](Rank rank, int step) {
    return timeline.spans[static_cast<size_t>(first_span[static_cast<size_t>(rank)] + step)].row;
  };
  for (const Schedule& schedule : all) {
    for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
      const Step& step = schedule.steps[static_cast<size_t>(i)];
      if (step.kind != StepKind::kSend && step.kind != StepKind::kSignal) continue;
      const int match = matching_steps[schedule.self][i];
      timeline.arrows.push_back({row(schedule.self, i), times.steps[schedule.self][i].end_us, row(step.peer, match),
                                 times.steps[step.peer][match].end_us});
    }
  }
  if (timeline.arrows.size() > kMaxArrows) timeline.arrows.clear();
}

}  // namespace

sim::Timeline timeline_of(std::span<const Schedule> all, const ScheduleTimes& times) {
  sim::Timeline timeline;
  const Schedule& s = all[0];
  timeline.title = std::string(collective_name(s.collective)) + " by " + s.algorithm + ", " +
                   format_bytes(static_cast<double>(s.elements * size_of(s.dtype))) + ", " +
                   std::to_string(s.num_ranks) + (s.num_ranks == 1 ? " rank: " : " ranks: ") + format_us(times.end_us);
  for (const Schedule& schedule : all) {
    std::map<LaneId, int> rows;
    for (const Step& step : schedule.steps) rows.try_emplace(lane_of(step), 0);
    for (auto& [lane, row] : rows) {
      row = static_cast<int>(timeline.rows.size());
      timeline.rows.push_back({"rank " + std::to_string(schedule.self), lane_name(lane)});
    }
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const Step& step = schedule.steps[i];
      const sim::TaskTime& time = times.steps[schedule.self][i];
      timeline.spans.push_back({rows[lane_of(step)], std::string(step_kind_name(step.kind)),
                                std::string(step_kind_name(step.kind)), time.start_us, time.end_us,
                                "step " + std::to_string(i) + ": " + describe(step)});
    }
  }
  add_links(all, times, timeline);
  return timeline;
}

}  // namespace herd
