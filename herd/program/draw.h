// A predicted step as a self-contained page: timeline, memory over time, what fills it, and the ops. Threads: pure.
#pragma once

#include <string>

#include "herd/draw/chart.h"
#include "herd/program/program.h"
#include "herd/program/simulate.h"

namespace herd::program {

std::string program_page(const Program& step, const Simulation& simulation);

// Device memory over a steady step, by what it is for: a chart of stacked areas, ms and MiB.
draw::Chart memory_chart(const Simulation& simulation, const std::string& title);

// Device memory at its peak, a line per kind: "states 1.21 GiB". Two blanks before each.
std::string memory_table(const Peak& peak);

}  // namespace herd::program
