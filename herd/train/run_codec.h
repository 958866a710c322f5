// Makes what a run's codec of gradients keeps (strategy.compression), from the run file.   Threads: one at a time.
#pragma once

#include <memory>

#include "herd/program/program.h"
#include "herd/runtime/encoded_gradients.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// Returns null where the step sums gradients without residuals. Borrows `parameters`.
std::unique_ptr<runtime::EncodedGradients> encoded_gradients(const spec::RunFile& run, const spec::ModelTable& table,
                                                             const runtime::FlatParameters& parameters,
                                                             const program::Program& step);

}  // namespace herd::train
