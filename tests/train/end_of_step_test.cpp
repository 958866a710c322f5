#include "herd/train/end_of_step.h"

#include <gtest/gtest.h>

#include <atomic>
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
        all_reduce_end_of_step({.loss_sum = comm.rank() + 0.5, .tokens = 10, .stop = comm.rank() == 1}, comm);
    EXPECT_EQ(all.loss_sum, 4.5);
    EXPECT_EQ(all.tokens, 30);
    EXPECT_TRUE(all.stop);
    EXPECT_FALSE(all_reduce_end_of_step({}, comm).stop);
  });
}

TEST(EndOfStep, TellsAllRanksOfACheckpointThatFailedOnOne) {
  run_inproc(3, [](Communicator& comm) {
    const EndOfStep all = all_reduce_end_of_step({.unsaved = comm.rank() == 2}, comm);
    EXPECT_TRUE(all.unsaved);
    EXPECT_FALSE(all.stop);
    EXPECT_FALSE(all_reduce_end_of_step({.stop = true}, comm).unsaved);
  });
}

TEST(EndOfStep, SaysHowLongItWaitedForTheSlowestRank) {
  std::atomic<bool> waits = false;
  run_inproc(2, [&](Communicator& comm) {
    if (comm.rank() == 0) waits = true;
    while (!waits) std::this_thread::sleep_for(1ms);
    if (comm.rank() == 1) std::this_thread::sleep_for(200ms);
    const EndOfStep all = all_reduce_end_of_step({}, comm);
    EXPECT_TRUE(comm.rank() == 1 || all.waited_ms > 100) << all.waited_ms;
  });
}

TEST(TellPeers, LetsSlowerRanksLook_WhereAllHaveTheError) {
  run_inproc(2, [](Communicator& comm) {
    if (comm.rank() == 1) std::this_thread::sleep_for(100ms);  // still looks at what rank 0 has seen
    tell_peers(comm, SharedError(Code::kBug, "all see it"));
    EXPECT_NO_THROW(comm.barrier()) << "the group lives on";
  });
}

TEST(TellPeers, EndsWhatPeersAreIn_WhereTheErrorIsOneRanks) {
  const auto errors = testing_support::errors_of(2, [](Communicator& comm) {
    if (comm.rank() == 0) return tell_peers(comm, Error(Code::kBug, "mine alone"));
    comm.barrier();
  });
  EXPECT_EQ(errors[1].code(), Code::kAborted);
  EXPECT_NE(errors[1].message().find("mine alone"), std::string::npos) << errors[1].what();
}

}  // namespace
}  // namespace herd::train
