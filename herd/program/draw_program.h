// Draws a predicted step as a self-contained page: timeline, memory over time by what it is for
// (memory_use.h), and the ops. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/program/program.h"
#include "herd/program/simulate.h"

namespace herd::program {

std::string program_page(const Program& step, const Simulation& simulation);

// Draws device memory over a step: areas by use, the op that holds most, and under the pointer what each op holds.
// `predicted` has the same ops where `step` was measured. It is drawn as a line of totals at the times of `step`, and
// may be empty. `limit` is a budget in bytes; 0 = none. Returns empty for a step without ops.
std::string memory_figure(const std::vector<OpMemory>& step, const std::vector<OpMemory>& predicted, int64_t limit);
// Lists what the uses hold at the op with most bytes, predicted beside measured. Either may be empty.
std::string memory_table(const std::vector<OpMemory>& predicted, const std::vector<OpMemory>& measured);
// Draws the bytes of the device, and of values on the host and in files, over a predicted step. Returns empty where
// nothing moves between them.
std::string tier_figure(const std::vector<OpMemory>& predicted, const std::vector<TierTraffic>& traffic);
// Lists what moves between tiers in a step: bytes, and of the predicted and the measured step the rate and the share
// that passes hide. Either may be empty.
std::string traffic_table(const std::vector<TierTraffic>& predicted, const std::vector<TierTraffic>& measured);
// Lists what a rank sends to ranks of other experts in a step: of the predicted and the measured one bytes, time, and
// the share of it that passes hide, with a row for their sums. Either may be empty. Returns empty where nothing moves.
std::string expert_traffic_table(const std::vector<ExpertTraffic>& predicted,
                                 const std::vector<ExpertTraffic>& measured);
// Lists each op's bytes, folded away.
std::string op_memory_table(const std::vector<OpMemory>& predicted, const std::vector<OpMemory>& measured);

}  // namespace herd::program
