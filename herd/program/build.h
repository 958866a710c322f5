// Builds the plain step of one rank: one micro-batch, no other rank, nothing released. Strategies rewrite it
// (herd/strategies). The ops are: load; forward of every block but the last; loss; backward of every block but the
// last, last first; an update (kStep) per group. Where the model's blocks are parts of layers, all values are whole:
// strategies/tensor_parallel.h says how ranks share them. Frozen groups have weights only; blocks before the first
// trained one run a forward without a graph.
// Threads: pure.
#pragma once

#include "herd/program/program.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::program {

// Returns the step; values have the bytes of a full micro-batch, and weights, states and losses are persistent.
Program plain_step(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout, int rank);

// Returns the bytes of optimizer state per parameter (spec::state_bytes): moments, and what makes a 16-bit weight an
// fp32 one.
int64_t state_bytes_per_parameter(const spec::RunFile& run);

}  // namespace herd::program
