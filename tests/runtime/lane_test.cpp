#include "herd/runtime/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "herd/base/error.h"

namespace herd::runtime {
namespace {

// An operation that a test ends, well or not.
class Operation final : public Event {
 public:
  bool done() const override { return ended_; }
  void wait() override {
    while (!ended_) std::this_thread::yield();
    if (failed_) throw Error(Code::kPeerLost, "rank 1 is gone");
  }
  Clock::time_point ended_at() const override { return at_; }
  void end(bool failed = false) {
    failed_ = failed;
    at_ = Clock::now();
    ended_ = true;
  }

 private:
  std::atomic<bool> ended_ = false, failed_ = false;
  Clock::time_point at_;
};

using LaneMaker = std::unique_ptr<Lane> (*)();

class EveryLane : public testing::TestWithParam<LaneMaker> {};

TEST_P(EveryLane, RunsJobsInOrder) {
  auto lane = GetParam()();
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i)
    lane->submit({}, [&seen, i]() -> EventPtr {
      seen.push_back(i);
      return nullptr;
    });
  lane->drain();
  ASSERT_EQ(seen.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen[i], i);
}

TEST_P(EveryLane, StartsAJobAfterTheEventsOfAnotherLane) {
  auto slow = thread_lane("slow");
  auto lane = GetParam()();
  std::atomic<bool> first_done = false, seen = false;
  EventPtr first = slow->submit({}, [&]() -> EventPtr {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    first_done = true;
    return nullptr;
  });
  lane->submit({first},
               [&]() -> EventPtr {
                 seen = first_done.load();
                 return nullptr;
               })
      ->wait();
  EXPECT_TRUE(seen);
}

TEST_P(EveryLane, IsDoneOnlyWhenTheOperationThatAJobStartedIs) {
  auto slow = thread_lane("slow");
  auto lane = GetParam()();
  std::atomic<bool> ended = false;
  EventPtr event = lane->submit({}, [&]() -> EventPtr {
    return slow->submit({}, [&]() -> EventPtr {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
      return nullptr;
    });
  });
  event->wait();
  EXPECT_TRUE(ended);
  EXPECT_TRUE(event->done());
}

TEST_P(EveryLane, RethrowsAtWait_AndRunsNothingAfterAFailure) {
  auto lane = GetParam()();
  bool ran = false;
  EventPtr bad = lane->submit({}, []() -> EventPtr { throw Error(Code::kAborted, "on purpose"); });
  EventPtr later = lane->submit({}, [&]() -> EventPtr {
    ran = true;
    return nullptr;
  });
  EXPECT_THROW(bad->wait(), Error);
  EXPECT_THROW(later->wait(), Error);
  EXPECT_FALSE(ran);
}

TEST_P(EveryLane, EndsInOrder_WhenALaterOperationEndsFirst) {
  auto lane = GetParam()();
  auto first = std::make_shared<Operation>(), second = std::make_shared<Operation>();
  lane->submit({}, [&] { return first; });
  EventPtr later = lane->submit({}, [&] { return second; });
  second->end();
  EXPECT_FALSE(later->done());
  first->end();
  later->wait();
  EXPECT_TRUE(later->done());
  EXPECT_EQ(later->ended_at(), second->ended_at());
}

TEST_P(EveryLane, FailsLaterJobs_AndRunsNoMore_OnceAStartedOperationHasFailed) {
  auto lane = GetParam()();
  auto first = std::make_shared<Operation>(), second = std::make_shared<Operation>();
  lane->submit({}, [&] { return first; });
  EventPtr running = lane->submit({}, [&] { return second; });
  second->end();
  first->end(true);
  bool ran = false;
  EventPtr later = lane->submit({}, [&]() -> EventPtr {
    ran = true;
    return nullptr;
  });
  for (const EventPtr& event : {running, later}) {
    try {
      event->wait();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kPeerLost);
    }
  }
  EXPECT_FALSE(ran);
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryLane,
                         testing::Values(LaneMaker([] { return inline_lane(); }),
                                         LaneMaker([] { return thread_lane("t"); }),
                                         LaneMaker([] { return ready_lane("r"); })));

TEST(ReadyLane, UsesTheCallingThread_WhenNothingHasToBeWaitedFor) {
  auto lane = ready_lane("r");
  std::thread::id ran_on;
  lane->submit({}, [&]() -> EventPtr {
    ran_on = std::this_thread::get_id();
    return nullptr;
  });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

}  // namespace
}  // namespace herd::runtime
