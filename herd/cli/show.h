// herd show schedule|program ...: what either IR holds, as text, picture or trace.
#pragma once

namespace CLI {
class App;
}

namespace herd::cli {

void add_show_command(CLI::App& app);

}  // namespace herd::cli
