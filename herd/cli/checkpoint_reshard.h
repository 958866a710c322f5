// herd checkpoint reshard CHECKPOINT --ranks N --out DIR: the shards that N ranks would have saved.
#pragma once

#include <string>

#include "herd/convert/reshard.h"

namespace CLI {
class App;
}

namespace herd::cli {

void add_checkpoint_reshard_command(CLI::App& app);
std::string reshard_checkpoint(convert::ReshardOptions options);  // the line to print; throws as convert::reshard()

}  // namespace herd::cli
