// Orders of a pipeline by name: in which sequence each of p ranks runs the passes of its stages over m micro-batches.
//   gpipe   all forwards, then all backwards: as many micro-batches wait in memory as there are.
//   1f1b    as many forwards as stages follow, then a forward and a backward in turn, then the backwards that are left:
//           at most p - stage micro-batches wait in memory. The bubble is that of gpipe.
//   interleaved   1f1b of v stages a rank: micro-batches go in groups of p, or of up to 2p - 1 where p does not divide
//   m, each group through the
//           rank's stages one after the other. The bubble is 1f1b's divided by v where p divides m.
//   zero_bubble_h1   1f1b with backward in two halves: stage s makes the gradients of weights s micro-batches after
//           those of inputs, which the stage before waits for. So p micro-batches are in memory on every stage, as on
//           the first one of 1f1b, and stages stand idle for (p-1)(F+B-W) of the step where 1f1b's do for
//           (p-1)(F+B+W), B and W the halves of a backward.
//   zero_bubble_v   the same with two stages a rank, folded: the rank of a stage on the way there has one on the way
//           back too. For m >= 2p - 1 and F = B = W no rank is idle between its first pass and its last; at most 2p
//           passes of a stage, as much as p micro-batches of 1f1b's first rank, are in memory.
// Backwards of a stage run in the order of micro-batches, so that its gradients are summed as one rank sums them.
// Sources: Huang et al. 2019, arXiv:1811.06965, section 2; Narayanan et al. 2019 (PipeDream), section 3.2, flushed once
// a step as in Narayanan et al. 2021, arXiv:2104.04473, sections 2.2.1 and 2.2.2; Qi et al. 2023, arXiv:2401.10241,
// section 2; Qi et al. 2024, arXiv:2405.15362, section 3.
// Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "herd/spec/layout.h"
#include "herd/spec/pipeline_order.h"

namespace herd::strategies {

// `name`: as strategy.pipeline says it. Throws kBadConfig for one that is not here.
spec::PipelineOrder pipeline_order(std::string_view name, const spec::PipelineForm& form, int ranks, int micro_batches);

// That of a run, which may be in a file. Throws kBadConfig for a file that is of other numbers of ranks or
// micro-batches.
spec::PipelineOrder pipeline_order(const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::strategies
