// A predicted step as a self-contained page: timeline, memory over time, what fills it, and the ops. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/draw/chart.h"
#include "herd/program/program.h"
#include "herd/program/simulate.h"

namespace herd::program {

std::string program_page(const Program& step, const Simulation& simulation);

// Device bytes over a steady step by what they are for, in steps; x in microseconds. Scratch last; what is less than a
// thousandth of the peak is left out.
std::vector<draw::Series> memory_series(const Simulation& simulation);
// Such series as a chart of stacked areas, in ms and MiB.
draw::Chart memory_chart(std::vector<draw::Series> series, const std::string& title);

}  // namespace herd::program
