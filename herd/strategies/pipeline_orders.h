// Orders of a pipeline: in which sequence one stage runs the forward and the backward passes of its micro-batches.
//   gpipe   all forwards, then all backwards: as many micro-batches wait in memory as there are.
//   1f1b    as many forwards as stages follow, then a forward and a backward in turn, then the backwards that are left:
//           at most p - stage micro-batches wait in memory. The bubble is that of gpipe.
// Backwards run in the order of micro-batches, so that gradients are summed as one rank sums them.
// Sources: Huang et al. 2019, arXiv:1811.06965, section 2; Narayanan et al. 2019 (PipeDream), section 3.2, flushed once
// a step as in Narayanan et al. 2021, arXiv:2104.04473, section 2.2.1.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace herd::strategies {

// One pass of a stage over its blocks.
struct Turn {
  bool backward = false;
  int micro_batch = 0;
  bool operator==(const Turn&) const = default;
};

// `order`: as strategy.pipeline names it. Throws kBadConfig for one that is not here.
std::vector<Turn> pipeline_order(std::string_view order, int stages, int stage, int micro_batches);

// The orders that are here.
const std::vector<std::string>& pipeline_orders();

}  // namespace herd::strategies
