// Makes what a run's codec of gradients keeps (strategy.compression), from the run file.   Threads: one at a time.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "herd/program/program.h"
#include "herd/runtime/encoded_gradients.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"
#include "herd/strategies/gradient_codec.h"

namespace herd::train {

// Returns by group the elements of its flat gradient that stay exact.
std::map<int, std::vector<kernels::ElementRange>> exact_elements(const strategies::GradientCodec& codec,
                                                                 const runtime::Groups& groups);

// Returns null where the step sums or pushes gradients without residuals. Borrows `parameters`, and `served`, which is
// null in a step without pushes.
std::unique_ptr<runtime::EncodedGradients> encoded_gradients(const spec::RunFile& run, const spec::ModelTable& table,
                                                             const runtime::FlatParameters& parameters,
                                                             const program::Program& step,
                                                             const runtime::ServedParameters* served);

}  // namespace herd::train
