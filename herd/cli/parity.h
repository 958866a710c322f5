// herd parity: runs one file in two layouts and compares what they compute.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct ParityOptions {
  std::string file;
  std::string program;                 // of an own model, with its first arguments; "" = herd's own trainer
  std::string a, b;                    // overrides of each side, separated by spaces; [mesh] says how many ranks it has
  std::vector<std::string> overrides;  // of both sides
  double loss_tolerance = 1e-6;        // relative, of each step's loss
  double weight_tolerance = 1e-3;      // relative, of each final weight: see cli/difference.h
  bool keep = false;                   // the folder with both runs
};

void add_parity_command(CLI::App& app);
int run_parity(const ParityOptions& options);  // 0 = within the tolerances, 1 = not; throws Error

}  // namespace herd::cli
