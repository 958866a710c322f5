// Draws a timeline: a bar for each span, rows below each other, groups apart, time to the right. Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"

namespace herd::draw {

std::string timeline_svg(const sim::Timeline& timeline);

// Writes Chrome's trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open: a process for each
// group, a thread for each row, times in microseconds.
std::string timeline_trace(const sim::Timeline& timeline);

}  // namespace herd::draw
