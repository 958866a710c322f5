#include "herd/runtime/device_lane.h"

#include <gtest/gtest.h>

#include "herd/runtime/executor.h"

namespace herd::runtime {
namespace {

// What lanes of a device do is tested on a device whose streams run late (tests/device).
TEST(DeviceLanes, AreTheCpusOwnOnTheCpu) {
  const LaneFactory make = lanes_of(program::Program(), c10::kCPU);
  const std::unique_ptr<Lane> lane = make(program::Lane::kCompute);
  bool ran = false;
  const EventPtr event = lane->submit({}, [&]() -> EventPtr {
    ran = true;
    return nullptr;
  });
  EXPECT_TRUE(ran);  // at once, on this thread
  EXPECT_TRUE(event->done());
  event->hold();
  EXPECT_FALSE(event->began_at());
}

}  // namespace
}  // namespace herd::runtime
