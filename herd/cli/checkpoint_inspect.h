// herd checkpoint inspect PATH [--verify] [--json] prints what a checkpoint holds.
#pragma once

#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace herd::cli {

struct InspectOptions {
  std::filesystem::path path;  // a checkpoint, a folder of them or a run's folder: then the newest whole one
  bool verify = false;         // read everything and compare the checksums
  bool json = false;
};

void add_checkpoint_inspect_command(CLI::App& app);
std::string inspect_checkpoint(const InspectOptions& options);  // returns the text to print; throws as CheckpointReader
int run_checkpoint_inspect(const InspectOptions& options);

}  // namespace herd::cli
