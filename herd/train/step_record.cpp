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

}  // namespace

std::string step_line(const StepRecord& r) {
  const StepMetrics& m = r.metrics;
  std::string line = print("step %lld/%lld", static_cast<long long>(m.step), static_cast<long long>(r.steps));
  line += print(" | loss %.4f", m.loss);
  if (!std::isnan(m.grad_norm)) line += print(" | norm %.3g", m.grad_norm);  // NaN: the step computed no norm
  line += print(" | lr %.2e | ", m.lr);
  line += format_bytes(static_cast<double>(m.device_bytes_peak));
  if (r.device_budget > 0) {
    const double budget = static_cast<double>(r.device_budget);
    line += print(", %.0f %% of ", 100 * static_cast<double>(m.device_bytes_peak) / budget) + format_bytes(budget);
  }
  line += print(" | %.0f tokens/s | %.1f GFLOP/s", m.tokens_per_s, r.gflops);
  if (r.peak_gflops > 0) line += print(", %.0f %% of matmul", 100 * r.gflops / r.peak_gflops);
  line += " | " + format_us(m.step_ms * 1e3);
  if (m.predicted_step_ms > 0) line += ", predicted " + format_us(m.predicted_step_ms * 1e3);
  if (m.val_loss) line += print(" | val_loss %.4f", *m.val_loss);
  return line + " | left " + format_us(r.left_s * 1e6);
}

}  // namespace herd::train
