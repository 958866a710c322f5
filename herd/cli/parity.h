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
  std::string a, b;                    // overrides of each side, separated by spaces; [mesh] says how many ranks it has
  std::vector<std::string> overrides;  // of both sides
  double loss_tolerance = 1e-6;        // relative, of each step's loss
  double weight_tolerance = 1e-3;      // relative, of each final weight: see weight_difference
  bool keep = false;                   // the folder with both runs
};

// The largest difference of two values, relative to `scale`, and where it is.
struct Difference {
  double relative = 0;
  std::string where;
};

// Per step |a - b| / |a|. A step that one side lacks is an infinite difference.
Difference loss_difference(const std::vector<double>& a, const std::vector<double>& b);

// Per weight |a - b| / max(largest |a| of its tensor, lr * steps): Adam moves a weight by up to lr a step, whatever its
// gradient; one whose true gradient is zero (key biases) follows rounding, so its own size is no measure.
Difference weight_difference(const std::string& checkpoint_a, const std::string& checkpoint_b, double lr_times_steps);

void add_parity_command(CLI::App& app);
int run_parity(const ParityOptions& options);  // 0 = within the tolerances, 1 = not; throws Error

}  // namespace herd::cli
