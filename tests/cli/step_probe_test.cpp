#include "herd/cli/step_probe.h"

#include <gtest/gtest.h>

#include <array>

#include "herd/comm/communicator.h"
#include "herd/comm/context.h"
#include "herd/comm/inproc_world.h"

namespace herd::cli {
namespace {

// Between operations of the same group, which stay right.
TEST(StepProbe, TimesStepsOnTheGroupsChannel) {
  run_inproc(3, [](Communicator& comm) {
    StepProbe probe(comm::Access::group(comm).channel());
    for (int i = 1; i < 10; ++i) {
      const double us = probe.us();
      EXPECT_GT(us, 0.002) << "a step takes some nanoseconds";
      EXPECT_LT(us, 100);
      std::array<float, 5> x;
      x.fill(static_cast<float>(i * (comm.rank() + 1)));
      comm.all_reduce(x);
      for (const float one : x) EXPECT_EQ(one, static_cast<float>(6 * i));
    }
  });
}

}  // namespace
}  // namespace herd::cli
