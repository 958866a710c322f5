// herd checkpoint reshard CHECKPOINT --ranks N --out DIR writes the shards that N ranks would have saved.
#pragma once

#include <string>

#include "herd/convert/reshard.h"

namespace CLI {
class App;
}

namespace herd::cli {

void add_checkpoint_reshard_command(CLI::App& app);
// Returns the line to print; throws as convert::reshard().
std::string reshard_checkpoint(convert::ReshardOptions options);

}  // namespace herd::cli
