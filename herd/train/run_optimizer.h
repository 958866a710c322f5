// Makes the optimizer that a run file asks for.   Threads: pure.
#pragma once

#include <memory>
#include <vector>

#include "herd/optim/learning_rate.h"
#include "herd/optim/optimizer.h"
#include "herd/spec/run_file.h"

namespace herd::train {

std::unique_ptr<optim::Optimizer> make_optimizer(const spec::RunFile::Optimizer& asked);
// Returns the type of each of the optimizer's states: bf16 for the first moment where momentum_precision asks for it,
// else fp32.
std::vector<at::ScalarType> state_types(const spec::RunFile::Optimizer& asked);
// Returns the learning rate by step.
optim::LearningRate learning_rate(const spec::RunFile& run);

}  // namespace herd::train
