#include "herd/train/measured_timeline.h"

#include <algorithm>

#include "herd/program/program_names.h"

namespace herd::train {
namespace {

int row_of(const std::string& group, const std::string& name, sim::Timeline& timeline) {
  for (size_t i = 0; i < timeline.rows.size(); ++i)
    if (timeline.rows[i].group == group && timeline.rows[i].name == name) return static_cast<int>(i);
  timeline.rows.push_back({group, name});
  return static_cast<int>(timeline.rows.size()) - 1;
}

}  // namespace

void append_step(const runtime::Executor& executor, sim::Timeline& timeline) {
  const program::Program& step = executor.program();
  const std::string group = "rank " + std::to_string(step.rank);
  for (const runtime::OpTime& time : executor.times()) {
    const program::Op& op = step.ops[static_cast<size_t>(time.op)];
    if (op.kind == program::OpKind::kRelease) continue;
    timeline.spans.push_back({.row = row_of(group, std::string(program::lane_name(op.lane)), timeline),
                              .name = program::describe(step, op),
                              .category = std::string(program::op_name(op.kind)),
                              .start_us = time.begin_us,
                              .end_us = time.end_us});
  }
}

sim::Timeline from_zero(sim::Timeline timeline) {
  double first = timeline.spans.empty() ? 0 : timeline.spans[0].start_us;
  for (const sim::Span& span : timeline.spans) first = std::min(first, span.start_us);
  for (sim::Span& span : timeline.spans) {
    span.start_us -= first;
    span.end_us -= first;
  }
  return timeline;
}

}  // namespace herd::train
