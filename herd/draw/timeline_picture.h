// A timeline as a picture: one bar per span, rows below each other, groups apart, time to the right. Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"

namespace herd::draw {

std::string timeline_svg(const sim::Timeline& timeline);

// Chrome's trace-event JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open: a process per group, a thread
// per row, microseconds.
std::string timeline_trace(const sim::Timeline& timeline);

}  // namespace herd::draw
