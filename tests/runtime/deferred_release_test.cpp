#include "herd/runtime/deferred_release_internal.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace herd::runtime {
namespace {

// An event that the test ends, well or not.
class Promised final : public Event {
 public:
  void end() { promise_.set_value(); }
  void fail() { promise_.set_exception(std::make_exception_ptr(std::runtime_error("lost"))); }
  bool done() const override { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  void wait() override { future_.get(); }
  bool held() const override { return is_held || done(); }
  Clock::time_point ended_at() const override { return Clock::now(); }
  bool is_held = false;

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

TEST(DeferredRelease, RunsOnce_WhenSomebodyAsksAfterAllEventsAreDone) {
  const auto first = std::make_shared<Promised>(), second = std::make_shared<Promised>();
  std::atomic<int> runs = 0;
  DeferredRelease completion({first, second}, [&]() -> EventPtr {
    ++runs;
    return nullptr;
  });
  EXPECT_FALSE(completion.done());
  second->end();
  EXPECT_FALSE(completion.done());
  EXPECT_EQ(runs, 0);
  first->end();
  EXPECT_EQ(runs, 0) << "nobody has asked";
  EXPECT_TRUE(completion.done());
  EXPECT_TRUE(completion.done());
  completion.wait();
  EXPECT_EQ(runs, 1);
}

TEST(DeferredRelease, RunsInTheThreadThatWaits_WhereNobodyHasAsked) {
  const auto event = std::make_shared<Promised>();
  std::thread::id ran;
  DeferredRelease completion({event}, [&]() -> EventPtr {
    ran = std::this_thread::get_id();
    return nullptr;
  });
  std::thread ends([&] { event->end(); });
  completion.wait();
  ends.join();
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(DeferredRelease, FailsWithItsEvent_AndDoesNotRun) {
  const auto event = std::make_shared<Promised>();
  bool ran = false;
  DeferredRelease completion({event}, [&]() -> EventPtr {
    ran = true;
    return nullptr;
  });
  event->fail();
  EXPECT_TRUE(completion.done());
  EXPECT_THROW(completion.wait(), std::runtime_error);
  EXPECT_THROW(completion.wait(), std::runtime_error);
  EXPECT_FALSE(ran);
}

// As an event of a lane does where one before it has failed while its own operation is under way.
class FailedEarly final : public Event {
 public:
  bool done() const override { return false; }
  void wait() override { throw std::runtime_error("lost"); }
  Clock::time_point ended_at() const override { return Clock::now(); }
};

TEST(DeferredRelease, FailsWhoeverWaits_WhereAnEventHasFailedAndIsNotDone) {
  bool ran = false;
  DeferredRelease completion({std::make_shared<FailedEarly>()}, [&]() -> EventPtr {
    ran = true;
    return nullptr;
  });
  EXPECT_THROW(completion.wait(), std::runtime_error);
  EXPECT_FALSE(completion.done());
  EXPECT_FALSE(ran);
}

// Others may use the same memory in another order than the computing stream's, so to them it is done later.
TEST(DeferredRelease, RunsOnceTheComputingStreamWaitsForAllEvents_AndIsDoneWithThem) {
  const auto first = std::make_shared<Promised>(), second = std::make_shared<Promised>();
  int runs = 0;
  DeferredRelease completion({first, second}, [&]() -> EventPtr {
    ++runs;
    return nullptr;
  });
  first->is_held = true;
  EXPECT_FALSE(completion.release());
  second->is_held = true;
  EXPECT_FALSE(completion.done());
  EXPECT_EQ(runs, 0) << "nobody has asked for it";
  EXPECT_TRUE(completion.release());
  EXPECT_TRUE(completion.release());
  EXPECT_FALSE(completion.done());
  first->end();
  second->end();
  EXPECT_TRUE(completion.done());
  completion.wait();
  EXPECT_EQ(runs, 1);
}

TEST(DeferredRelease, FailsWithAnEventThatFailsAfterItRan) {
  const auto event = std::make_shared<Promised>();
  DeferredRelease completion({event}, [&]() -> EventPtr { return nullptr; });
  event->is_held = true;
  EXPECT_TRUE(completion.release());
  event->fail();
  EXPECT_TRUE(completion.done());
  EXPECT_THROW(completion.wait(), std::runtime_error);
}

}  // namespace
}  // namespace herd::runtime
