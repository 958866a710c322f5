// herd generate writes text with the weights of a checkpoint. It replaces itself by herd-trainer and passes its options
// on.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

void add_generate_command(CLI::App& app);
int run_generate(const std::vector<std::string>& arguments);  // does not return where herd-trainer could be started

}  // namespace herd::cli
