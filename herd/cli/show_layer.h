// herd show layer FILE.toml|MODEL [section.key=value ...] [--ranks N] [--text] [--svg FILE] [--html FILE]
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct ShowLayerOptions {
  std::string file;  // a run file, or the name of a known model
  std::vector<std::string> overrides = {};
  int ranks = 0;      // 0 = what the mesh states
  bool text = false;  // also where a file is written
  std::string svg = {}, html = {};
};

void add_show_layer_command(CLI::App& show);
int run_show_layer(const ShowLayerOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
