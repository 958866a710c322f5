// Gives the learning rate of a step: a linear warm-up, then one of the schedules below. Symbols: t = step + 1, W
// warm-up steps, N steps in total, p = min(1, (t - W) / (N - W)).
//   t <= W     peak * t / W
//   constant   peak
//   linear     min + (peak - min) * (1 - p)
//   cosine     min + (peak - min) * (1 + cos(pi * p)) / 2
// So the first step has a rate above 0. Where the rate decays and W < N, the last step has `min` exactly.
// Source of the cosine: Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5.   Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace herd::optim {

enum class RateSchedule : uint8_t { kConstant, kLinear, kCosine };

RateSchedule parse_rate_schedule(std::string_view name);  // reads "constant", "linear" or "cosine"; throws kBadConfig

struct LearningRate {
  double peak = 3e-4;
  double min = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  RateSchedule schedule = RateSchedule::kCosine;

  double of_step(int64_t step) const;  // step counts from 0
};

}  // namespace herd::optim
