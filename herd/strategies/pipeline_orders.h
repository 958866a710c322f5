// Makes orders of a pipeline by name: the sequence in which each of p ranks runs the passes of its stages over m
// micro-batches.
//   gpipe           runs all forwards, then all backwards: all m micro-batches wait in memory.
//   1f1b            runs as many forwards as stages follow, then a forward and a backward in turn, then the backwards
//                   that are left. At most p - stage micro-batches wait in memory. The bubble is that of gpipe.
//   interleaved     is 1f1b of v stages a rank. Micro-batches go in groups of p, or of up to 2p - 1 where p does not
//                   divide m, each group through the rank's stages one after the other. The bubble is 1f1b's divided by
//                   v where p divides m.
//   zero_bubble_h1  is 1f1b with backward in two halves: stage s makes the gradients of weights s micro-batches after
//                   those of inputs, which the stage before waits for. So p micro-batches are in memory on every stage,
//                   as on the first stage of 1f1b. Stages are idle for (p-1)(F+B-W) of the step, in 1f1b for
//                   (p-1)(F+B+W), with F a forward, and B and W the halves of a backward.
//   zero_bubble_v   is zero_bubble_h1 with two stages a rank, folded (spec/pipeline_order.h). For m >= 2p - 1 and
//                   F = B = W no rank is idle between its first pass and its last. At most 2p passes of a stage are in
//                   memory, as much as p micro-batches of 1f1b's first rank.
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

// Returns the order that strategy.pipeline calls `name`. Throws kBadConfig for an unknown name.
spec::PipelineOrder pipeline_order(std::string_view name, const spec::PipelineForm& form, int ranks, int micro_batches);

// Returns the order of a run, which may be in a file. Throws kBadConfig for a file with other numbers of ranks or
// micro-batches.
spec::PipelineOrder pipeline_order(const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::strategies
