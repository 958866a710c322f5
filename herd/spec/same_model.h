// Checks whether weights are those of a run's model. Names and shapes alone don't tell. The first half of the layers,
// other heads of the same width or a model without its untied head would load as well. Threads: pure.
#pragma once

#include <string>

#include "herd/spec/run_file.h"

namespace herd::spec {

// Throws kBadConfig naming each key of [model] that differs between the weights at `source` and the run. Also throws it
// for a context that is longer than the positions of the weights. A shorter context and another dropout are legal.
void check_same_model(const RunFile::Model& of_weights, const RunFile::Model& of_run, const std::string& source);

}  // namespace herd::spec
