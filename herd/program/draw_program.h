// A predicted step as a self-contained page: timeline, memory over time, what fills it, and the ops. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/program/program.h"
#include "herd/program/simulate.h"

namespace herd::program {

std::string program_page(const Program& step, const Simulation& simulation);

// Device memory over a step: areas by use, the op that holds most, and under the pointer what each op holds. `beside`:
// the same ops as predicted or measured elsewhere, drawn as a line of their totals at the times of `step`; may be
// empty. `limit`: a budget in bytes; 0 = none. Empty for a step without ops.
std::string memory_figure(const std::vector<OpMemory>& step, const std::vector<OpMemory>& beside, int64_t limit);
// What the uses hold at the op with most, and each op's bytes, folded; predicted beside measured, either may be empty.
std::string memory_tables(const std::vector<OpMemory>& predicted, const std::vector<OpMemory>& measured);

}  // namespace herd::program
