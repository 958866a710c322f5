// Chooses how the pipeline of a run is cut into stages, by time and by what stages hold in memory (spec/stage_cut.h).
//   A rank holds the weights, gradients and states of its stages, as the ZeRO stage cuts them, and the activations that
//   its blocks keep of as many micro-batches as the order has in flight there. Equations estimate these bytes
//   (equations_internal.h). With memory.device_budget the programs of the chosen cut say whether it fits; where it does
//   not, the search goes on with what its stages hold.
// Without a budget the fastest cut is taken, and of equally fast ones that whose fullest rank holds least; with one,
// the fastest that fits it. Where none fits, it is the cut whose fullest rank holds least, and check_budgets() refuses
// it. A cut that parts blocks which share a parameter group comes last, except for the first and the last stage of a
// tied embedding. Threads: pure.
#pragma once

#include <vector>

#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::planner {

// Returns the layout with the stages of its layers. `model` is that of programs, for the run and the layout, and
// `kernels` those that it was made for. Throws as compile_step() does for a cut that has no program.
spec::Layout with_stage_cut(const spec::RunFile& run, const spec::ModelTable& model, spec::Layout layout,
                            spec::Kernels kernels = spec::Kernels::kCpu);

// Returns the same by equations alone, for a table of whole layers.
spec::Layout with_estimated_stage_cut(const spec::RunFile& run, const spec::ModelTable& model, spec::Layout layout);

}  // namespace herd::planner
