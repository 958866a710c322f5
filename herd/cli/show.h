// herd show schedule|program|order|layer ...: what either IR and a layer hold, as text, picture or trace.
#pragma once

namespace CLI {
class App;
}

namespace herd::cli {

void add_show_command(CLI::App& app);

}  // namespace herd::cli
