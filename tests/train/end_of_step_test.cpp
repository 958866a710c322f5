#include "herd/train/end_of_step.h"

#include <gtest/gtest.h>

#include <thread>

#include "herd/comm/inproc_world.h"
#include "herd/train/shared_error.h"
#include "tests/comm/errors_of.h"

namespace herd::train {
namespace {

using namespace std::chrono_literals;

TEST(EndOfStep, AddsWhatRanksHave_AndStopsAllWhereOneWasAsked) {
  run_inproc(3, [](Communicator& comm) {
    const EndOfStep all =
        meet_at_end_of_step({.loss_sum = comm.rank() + 0.5, .tokens = 10, .stop = comm.rank() == 1}, comm);
    EXPECT_EQ(all.loss_sum, 4.5);
    EXPECT_EQ(all.tokens, 30);
    EXPECT_TRUE(all.stop);
    EXPECT_FALSE(meet_at_end_of_step({}, comm).stop);
  });
}

TEST(EndOfStep, SaysHowLongItWaitedForTheSlowestRank) {
  run_inproc(2, [](Communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(200ms);
    const EndOfStep all = meet_at_end_of_step({}, comm);
    EXPECT_TRUE(comm.rank() == 1 || all.waited_ms > 100) << all.waited_ms;
  });
}

}  // namespace
}  // namespace herd::train
