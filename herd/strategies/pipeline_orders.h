// Orders of a pipeline: in which sequence one stage runs the passes of its micro-batches.
//   gpipe   all forwards, then all backwards: as many micro-batches wait in memory as there are.
//   1f1b    as many forwards as stages follow, then a forward and a backward in turn, then the backwards that are left:
//           at most p - stage micro-batches wait in memory. The bubble is that of gpipe.
//   zero_bubble_h1   1f1b with backward in two halves: stage s makes the gradients of weights s micro-batches after
//   those of
//           inputs, which the stage before waits for. So p micro-batches are in memory on every stage, as on the first
//           one of 1f1b, and stages stand idle for (p-1)(F+B-W) of the step where 1f1b's do for (p-1)(F+B+W), B and W
//           the halves of a backward.
// Backwards run in the order of micro-batches, so that gradients are summed as one rank sums them.
// Sources: Huang et al. 2019, arXiv:1811.06965, section 2; Narayanan et al. 2019 (PipeDream), section 3.2, flushed once
// a step as in Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1; Qi et al. 2023, arXiv:2401.10241, section 2.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace herd::strategies {

enum class Pass : uint8_t { kForward, kBackward, kWeights };  // of a backward in two halves the second

// One pass of a stage over its blocks.
struct Turn {
  Pass pass = Pass::kForward;
  int micro_batch = 0;
  bool operator==(const Turn&) const = default;
};

// `order`: as strategy.pipeline names it. Throws kBadConfig for one that is not here.
std::vector<Turn> pipeline_order(std::string_view order, int stages, int stage, int micro_batches);

bool splits_backward(std::string_view order);  // whether it has turns of Pass::kWeights

// The orders that are here.
const std::vector<std::string>& pipeline_orders();

}  // namespace herd::strategies
