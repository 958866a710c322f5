// The optimizer that a run file asks for.   Threads: pure.
#pragma once

#include <memory>
#include <vector>

#include "herd/optim/learning_rate.h"
#include "herd/optim/optimizer.h"
#include "herd/spec/run_file.h"

namespace herd::train {

std::unique_ptr<optim::Optimizer> make_optimizer(const spec::RunFile::Optimizer& asked);
// In what type each of its states is kept: fp32, but for a momentum that is asked for in bf16.
std::vector<at::ScalarType> state_types(const spec::RunFile::Optimizer& asked);
optim::LearningRate learning_rate(const spec::RunFile& run);

}  // namespace herd::train
