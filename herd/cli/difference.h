// Measures how far two runs are apart, for herd parity. Threads: pure, but for the files that they read.
#pragma once

#include <string>
#include <vector>

namespace herd::cli {

// Holds the largest relative difference, and where it is.
struct Difference {
  double relative = 0;
  std::string where;
};

// Returns per step |a - b| / |a|. A step that one side lacks is an infinite difference. A loss that is not finite gives
// a difference that is not finite: within no tolerance.
Difference loss_difference(const std::vector<double>& a, const std::vector<double>& b);

// Returns per weight |a - b| / max(largest |a| of its tensor, lr * steps). Adam moves a weight by up to lr a step,
// whatever its gradient. A weight whose true gradient is zero (key biases) follows rounding, so its own size is no
// measure. Optimizer states are left out. The result is not finite where a weight is not, and where there is nothing to
// compare. It is not finite either where one side lacks a tensor or has it in another shape.
Difference weight_difference(const std::string& checkpoint_a, const std::string& checkpoint_b, double lr_times_steps);

}  // namespace herd::cli
