// expect_within(limit, attempt): `attempt` says how long something took, and that is less than the limit. One that took
// longer is made again, ten times in all: other programs may have held the cores.
#pragma once

#include <gtest/gtest.h>

#include <chrono>

namespace herd {

template <typename Attempt>
void expect_within(std::chrono::nanoseconds limit, const Attempt& attempt) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  std::chrono::nanoseconds took{};
  for (int times = 0; times < 10; ++times) {
    took = attempt();
    if (took < limit) return;
  }
  ADD_FAILURE() << "it took " << Milliseconds(took).count() << " ms, limit " << Milliseconds(limit).count() << " ms";
}

}  // namespace herd
