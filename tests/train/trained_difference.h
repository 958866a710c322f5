// How far two trainings are apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "train_in_threads.h"

namespace herd::train {

// The largest relative difference of losses, and of the validation's. Expects as many steps.
inline double most_apart(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses.size(), b.losses.size());
  double worst = std::abs(a.validation - b.validation) / b.validation;
  for (size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i)
    worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / b.losses[i]);
  return worst;
}

}  // namespace herd::train
