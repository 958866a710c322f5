#include "herd/optim/loss_scale.h"

#include <algorithm>

namespace herd::optim {

void LossScale::after_step(bool overflow) {
  if (overflow) {
    scale_ = std::max(1.0, scale_ / 2);
    good_steps_ = 0;
    ++skipped_;
  } else if (++good_steps_ == kGrowAfter) {
    scale_ = std::min(kLargest, scale_ * 2);
    good_steps_ = 0;
  }
}

}  // namespace herd::optim
