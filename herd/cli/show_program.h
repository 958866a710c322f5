// herd show program FILE.toml [section.key=value ...] [--ranks N] [--rank R] [--pass prompt|token]
//   [--cells] [--text] [--trace FILE] [--html FILE] [--svg FILE]
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct ShowProgramOptions {
  std::string file;
  std::vector<std::string> overrides = {};
  int ranks = 2;
  int rank = 0;
  std::string pass = {};      // "prompt" or "token": of continuing a text, on mesh.tp ranks; empty = the training step
  bool cells = false;         // what each rank keeps, layer by layer, in place of the ops
  bool text = false;          // also where a file is written
  bool dependencies = false;  // a column more: what an op waits for
  std::string trace = {}, html = {}, svg = {};
};

void add_show_program_command(CLI::App& show);
int run_show_program(const ShowProgramOptions& options);  // exit status; throws herd::Error

}  // namespace herd::cli
