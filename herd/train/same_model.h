// Whether the weights of a checkpoint are those of a run's model. Names and shapes alone don't tell: the first half of
// the layers, other heads of the same width or a model without its untied head would load as well.
#pragma once

#include <string>

#include "herd/spec/run_file.h"
#include "herd/storage/manifest.h"

namespace herd::train {

// Throws kBadConfig naming each key of [model] that differs from the run file that the manifest holds; dropout may.
// A manifest without a run file passes.
void check_same_model(const Manifest& manifest, const spec::RunFile& wanted, const std::string& checkpoint);

}  // namespace herd::train
