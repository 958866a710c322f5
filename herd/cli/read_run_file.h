// Reads the run file of a command, with the [model] of the weights that the run begins with.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "herd/spec/run_file.h"

namespace herd::cli {

// Reads as spec::parse_run_file(). Where model.weights names a model, it opens its files and checks every name and
// shape. Keys of [model] that the run file leaves out are that model's, and those that it states must agree.
// model.weights becomes the very checkpoint that was found, also where the run goes on. A run that goes on has the
// model of its own checkpoint, and no longer needs the weights that it began with. A run of a program's own blocks has
// the table that the program left beside the file. Also throws as
// convert::open_weights() and spec::check_same_model().
spec::RunFile read_run_file(const std::string& path, std::span<const std::string> overrides = {});

// Returns "section.key=value" for each key of [model], which a process that parses the file again must be told.
std::vector<std::string> model_overrides(const spec::RunFile& run);

}  // namespace herd::cli
