#include "herd/train/machine_pace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "herd/base/midmean.h"
#include "herd/base/units.h"

namespace herd::train {
namespace {

constexpr double kShare = 0.01;        // of the time of steps, that looks take by themselves
constexpr std::ptrdiff_t kRecent = 5;  // looks

int64_t steps_between(const BlockPasses& passes, int64_t every, double predicted_us) {
  if (predicted_us <= 0) return 0;
  if (every != spec::kAuto) return every;
  return std::max<int64_t>(1, std::llround(std::ceil(passes.pass_us() / (kShare * predicted_us))));
}

}  // namespace

MachinePace::MachinePace(BlockPasses& passes, int64_t every, double predicted_step_us)
    : passes_(passes),
      predicted_us_(predicted_step_us),
      soon_(every == spec::kAuto),
      every_(steps_between(passes, every, predicted_step_us)) {}

bool MachinePace::due(int64_t steps_done, bool last) const {
  if (every_ == 0) return false;
  const bool early = soon_ && steps_done < every_ && std::has_single_bit(static_cast<uint64_t>(steps_done));
  return last || early || steps_done % every_ == 0;
}

double MachinePace::look() {
  paces_.push_back(passes_.pace());
  return paces_.back();
}

double MachinePace::recent() const {
  if (!looked()) return 1;
  const auto count = std::min(kRecent, static_cast<std::ptrdiff_t>(paces_.size()));
  return midmean({paces_.end() - count, paces_.end()});
}

double MachinePace::overall() const { return midmean(paces_); }

std::string MachinePace::summary(double median_step_us) const {
  const double expected_us = predicted_us_ * overall();
  char text[64];
  std::string out = "predicted at the machine's pace: " + format_us(predicted_us_);
  std::snprintf(text, sizeof text, " x %.2f = ", overall());
  out += text + format_us(expected_us) + " a step, over " + std::to_string(paces_.size()) +
         (paces_.size() == 1 ? " look" : " looks");
  std::snprintf(text, sizeof text, ", %.0f %%", 100 * median_step_us / expected_us);
  return out + "; measured " + format_us(median_step_us) + text;
}

}  // namespace herd::train
