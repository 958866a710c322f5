// The run file of a command, with the [model] of the weights that the run begins with.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::cli {

// As spec::parse_run_file(). Where model.weights names a model, its files are opened and every name and shape is
// checked; keys of [model] that the run file leaves out are that model's, those that it states must agree, and
// model.weights becomes the very checkpoint that was found. A run that goes on has the model of its own checkpoint, and
// needs the weights that it once began with no more. Throws as convert::open_weights() and spec::check_same_model(),
// too.
spec::RunFile read_run_file(const std::string& path, std::span<const std::string> overrides = {});

// "section.key=value" for each key of [model]: what a process that parses the file again must be told.
std::vector<std::string> model_overrides(const spec::RunFile& run);

}  // namespace herd::cli
