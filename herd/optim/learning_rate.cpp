#include "herd/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "herd/base/error.h"

namespace herd::optim {

RateSchedule parse_rate_schedule(std::string_view name) {
  if (name == "constant") return RateSchedule::kConstant;
  if (name == "linear") return RateSchedule::kLinear;
  if (name == "cosine") return RateSchedule::kCosine;
  throw Error(Code::kBadConfig,
              "no learning rate schedule \"" + std::string(name) + "\"; valid: constant, linear, cosine");
}

double LearningRate::of_step(int64_t step) const {
  const int64_t t = step + 1;
  if (t <= warmup_steps) return peak * static_cast<double>(t) / static_cast<double>(warmup_steps);
  const auto span = static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
  const double p = std::min(1.0, static_cast<double>(t - warmup_steps) / span);
  switch (schedule) {
    case RateSchedule::kConstant:
      return peak;
    case RateSchedule::kLinear:
      return min + (peak - min) * (1 - p);
    case RateSchedule::kCosine:
      return min + (peak - min) * (1 + std::cos(std::numbers::pi * p)) / 2;
  }
  throw Error(Code::kBug, "unknown schedule");
}

}  // namespace herd::optim
