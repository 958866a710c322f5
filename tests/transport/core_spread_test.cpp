#include "herd/transport/core_spread.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>
#include <vector>

namespace herd::transport {
namespace {

cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  EXPECT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
  return cores;
}

// This thread as the first of four ranks, on the first core that it may use.
class Spread : public testing::Test {
 protected:
  void SetUp() override {
    before_ = own_cores();
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "one core";
    while (!CPU_ISSET(first_, &before_)) ++first_;
    second_ = first_ + 1;
    while (!CPU_ISSET(second_, &before_)) ++second_;
    for (int rank = 0; rank < 4; ++rank) all_.push_back(&words_[rank]);
    stay_on_first();
  }
  void TearDown() override { sched_setaffinity(0, sizeof before_, &before_); }
  void stay_on_first() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first_, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  void say(int a, int b, int c) {
    const int cores[] = {a, b, c};
    for (int i = 0; i < 3; ++i) words_[i + 1] = static_cast<uint32_t>(cores[i]) + 1;
  }
  // Where this rank is after a look, by its own word; it may use the first two cores.
  int look() {
    CPU_ZERO(&two_);
    CPU_SET(first_, &two_);
    CPU_SET(second_, &two_);
    EXPECT_EQ(sched_setaffinity(0, sizeof two_, &two_), 0);
    CoreSpread(&words_[0], all_).rebalance();
    return static_cast<int>(words_[0]) - 1;
  }

  cpu_set_t before_ = {}, two_ = {};
  int first_ = 0, second_ = 0;
  CoreWord words_[4] = {};
  std::vector<const CoreWord*> all_;
};

TEST_F(Spread, GoesWhereTwoFewerWait_AndKeepsItsAffinity) {
  say(first_, first_, second_);
  EXPECT_EQ(look(), second_);
  EXPECT_EQ(sched_getcpu(), second_);
  const cpu_set_t after = own_cores();
  EXPECT_TRUE(CPU_EQUAL(&after, &two_));
}

TEST_F(Spread, StaysWhereOneMoreWaitsThanElsewhere) {
  say(first_, second_, second_);
  EXPECT_EQ(look(), first_);
}

TEST_F(Spread, StaysOnTheCoresItMayUse) {
  say(first_, first_, first_);
  CoreSpread(&words_[0], all_).rebalance();
  EXPECT_EQ(words_[0], static_cast<uint32_t>(first_) + 1);
  EXPECT_EQ(sched_getcpu(), first_);
}

TEST_F(Spread, DoesNotCountARankThatSleeps) {
  say(first_, first_, second_);
  CoreSpread other(&words_[1], all_);
  other.leave();
  EXPECT_EQ(words_[1], 0u);
  EXPECT_EQ(look(), first_);
}

TEST_F(Spread, DoesNotCountRanksThatHaveNotWaited) {
  words_[1] = static_cast<uint32_t>(first_) + 1;
  EXPECT_EQ(look(), second_);
}

}  // namespace
}  // namespace herd::transport
