#include "herd/train/step_record.h"

#include <cmath>
#include <cstdio>

#include "herd/base/units.h"

namespace herd::train {
namespace {

template <typename... Values>
std::string print(const char* format, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string step_of(const StepRecord& r) {
  return print("step %lld/%lld", static_cast<long long>(r.metrics.step), static_cast<long long>(r.steps));
}

}  // namespace

std::string validation_line(const StepRecord& r) {
  std::string line = step_of(r) + print("  val_loss %.4f", *r.metrics.val_loss);
  for (const auto& [name, value] : r.metrics.val_figures) line += "  " + name + print(" %.4f", value);
  return line;
}

std::string step_line(const StepRecord& r) {
  const StepMetrics& m = r.metrics;
  std::string line = step_of(r);
  line += print("  loss %.4f", m.loss);
  if (!std::isnan(m.grad_norm)) line += print("  norm %.2g", m.grad_norm);  // NaN: the step computed no norm
  line += print("  lr %.2g  ", m.lr);
  if (m.expert_imbalance) line += print("experts %.2fx  ", *m.expert_imbalance);
  if (m.expert_dropped) line += print("dropped %.1f %%  ", 100 * *m.expert_dropped);
  const double budget = static_cast<double>(r.device_budget), peak = static_cast<double>(m.device_bytes_peak);
  line += budget > 0 ? print("%.0f %% of ", 100 * peak / budget) + format_bytes(budget) : format_bytes(peak);
  line += print("  %.0f tok/s  ", m.tokens_per_s) + format_us(m.step_ms * 1e3);
  if (m.predicted_step_ms > 0) line += ", est. " + format_us(m.predicted_step_ms * 1e3);
  return line + "  left " + format_us(r.left_s * 1e6);
}

// More than all of it: other processes slowed the matmul down while it was timed, so the ratio says nothing.
std::string beside_matmul(double gflops, double matmul_gflops) {
  const double share = 100 * gflops / matmul_gflops;
  return print("a rank computes at %.1f GFLOP/s, ", gflops) + (share > 100 ? "over 100" : print("%.0f", share)) +
         " % of a large matmul's rate";
}

}  // namespace herd::train
