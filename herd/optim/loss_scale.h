// Scales the loss dynamically for gradients in fp16, whose smallest step is 2^-24. The loss is multiplied by a scale,
// and the update divides it out again. A step whose gradient overflows is skipped and halves the scale; kGrowAfter
// steps without one double it.
//   scale in [1, 2^24], 2^16 at first.   With a norm that is the same on all ranks, all decide the same.
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2.   Threads: one at a time.
#pragma once

#include <cstdint>

namespace herd::optim {

class LossScale {
 public:
  static constexpr int64_t kGrowAfter = 2000;
  static constexpr double kLargest = 1 << 24;
  explicit LossScale(double scale = 65536, int64_t good_steps = 0, int64_t skipped = 0)
      : scale_(scale), good_steps_(good_steps), skipped_(skipped) {}
  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }  // counts since the scale changed
  int64_t skipped() const { return skipped_; }        // counts over all steps so far
  bool can_shrink() const { return scale_ > 1; }
  void after_step(bool overflow);  // call it once a step

 private:
  double scale_;
  int64_t good_steps_, skipped_;
};

}  // namespace herd::optim
