// herd checkpoint inspect | convert | reshard: each in a file of its own.
#pragma once

namespace CLI {
class App;
}

namespace herd::cli {

void add_checkpoint_command(CLI::App& app);

}  // namespace herd::cli
