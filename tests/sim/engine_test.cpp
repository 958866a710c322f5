#include "herd/sim/engine.h"

#include <gtest/gtest.h>

#include <limits>

#include "herd/base/error.h"
#include "tests/support/expect_error.h"

namespace herd::sim {
namespace {

TEST(Engine, ALaneRunsItsTasksInOrder) {
  Engine engine;
  const int first = engine.add_task({.lane = 0, .work_us = 3});
  const int second = engine.add_task({.lane = 0, .latency_us = 1, .work_us = 2});
  const Outcome outcome = engine.run();
  EXPECT_EQ(outcome.tasks[first], (TaskTime{0, 3}));
  EXPECT_EQ(outcome.tasks[second], (TaskTime{3, 6}));
  EXPECT_EQ(outcome.end_us, 6);
}

TEST(Engine, ATaskWaitsForWhatItFollows) {
  Engine engine;
  const int a = engine.add_task({.lane = 0, .work_us = 3});
  const int b = engine.add_task({.lane = 1, .work_us = 5});
  const int c = engine.add_task({.lane = 2, .work_us = 1, .after = {a, b}});
  EXPECT_EQ(engine.run().tasks[c], (TaskTime{5, 6}));
}

TEST(Engine, ALatencyPassesBesideOtherWaits_WhereItRunsFromOneOfThem) {
  Engine engine;
  const int sent = engine.add_task({.lane = 0, .work_us = 1});
  const int busy = engine.add_task({.lane = 1, .work_us = 5});
  const int hidden = engine.add_task({.latency_us = 3, .latency_from = sent, .work_us = 1, .after = {sent, busy}});
  const int seen = engine.add_task({.latency_us = 7, .latency_from = sent, .work_us = 1, .after = {sent, busy}});
  const int last = engine.add_task({.latency_us = 3, .work_us = 1, .after = {sent, busy}});
  const Outcome outcome = engine.run();
  EXPECT_EQ(outcome.tasks[hidden].end_us, 6);
  EXPECT_EQ(outcome.tasks[seen].end_us, 9);
  EXPECT_EQ(outcome.tasks[last].end_us, 9);
}

TEST(Engine, UsersTakeTurnsOnACore) {
  Engine engine;
  const int core = engine.add_core(2);
  const int mine = engine.add_task({.lane = 0, .work_us = 3, .core = core, .user = 0});
  const int other = engine.add_task({.lane = 1, .work_us = 1, .core = core, .user = 1});
  const int again = engine.add_task({.lane = 0, .work_us = 4, .core = core, .user = 0});
  const int elsewhere = engine.add_task({.lane = 2, .work_us = 5});
  const Outcome outcome = engine.run();
  EXPECT_EQ(outcome.tasks[mine].end_us, 3);
  EXPECT_EQ(outcome.tasks[again].end_us, 7) << "who has the core keeps it";
  EXPECT_EQ(outcome.work_start_us[other], 9) << "a switch later";
  EXPECT_EQ(outcome.tasks[other].start_us, 0);
  EXPECT_EQ(outcome.tasks[other].end_us, 10);
  EXPECT_EQ(outcome.tasks[elsewhere].end_us, 5);
}

TEST(Engine, WhoWaitsForACoreGetsItWhenItsUserHasToWait) {
  Engine engine;
  const int core = engine.add_core(2);
  const int far = engine.add_task({.work_us = 10});
  const int first = engine.add_task({.work_us = 1, .core = core, .user = 0});
  const int second = engine.add_task({.work_us = 1, .after = {far, first}, .core = core, .user = 0});
  const int other = engine.add_task({.work_us = 1, .core = core, .user = 1});
  const Outcome outcome = engine.run();
  EXPECT_EQ(outcome.work_start_us[other], 3);
  // Idle since 4, and both users look in turn: half a switch until the right one does.
  EXPECT_EQ(outcome.work_start_us[second], 11);
}

TEST(Engine, NoTaskOfAUserBeginsBeforeItsTurn) {
  Engine engine;
  const int core = engine.add_core(2);
  engine.add_task({.work_us = 3, .core = core, .user = 0});
  const int first = engine.add_task({.latency_us = 1, .work_us = 1, .core = core, .user = 1});
  const int during = engine.add_task({.latency_us = 4, .work_us = 1, .core = core, .user = 1});
  const Outcome outcome = engine.run();
  EXPECT_EQ(outcome.work_start_us[first], 5);
  EXPECT_EQ(outcome.work_start_us[during], 5) << "the switch lasts from 3 to 5";
}

TEST(Engine, ACoreOfOneUserHasNoSwitches) {
  Engine engine;
  const int core = engine.add_core(2);
  const int far = engine.add_task({.work_us = 10});
  const int first = engine.add_task({.work_us = 1, .core = core, .user = 3});
  const int second = engine.add_task({.work_us = 0, .after = {far, first}, .core = core, .user = 3});
  const int third = engine.add_task({.work_us = 2, .after = {second}, .core = core, .user = 3});
  EXPECT_EQ(engine.run().tasks[third].end_us, 12);
}

TEST(Engine, MoreTasksThanCoresShareTheCores) {
  Engine engine;
  const int cores = engine.add_resource("cores", 2);
  for (int lane = 0; lane < 4; ++lane) engine.add_task({.lane = lane, .work_us = 10, .uses = {{cores, 1}}});
  const Outcome outcome = engine.run();
  for (const TaskTime& time : outcome.tasks) EXPECT_DOUBLE_EQ(time.end_us, 20);
  EXPECT_DOUBLE_EQ(outcome.busy_share[cores], 1);
}

TEST(Engine, WhatOneTaskLeavesUnusedGoesToTheOthers) {
  // a and b share the uplink (speed 1/2 each); c then finds 10 - 5 - 0 = 5 of the bus free, and needs 8.
  Engine engine;
  const int bus = engine.add_resource("bus", 10), uplink = engine.add_resource("uplink", 10);
  const int a = engine.add_task({.lane = 0, .work_us = 10, .uses = {{bus, 4}, {uplink, 10}}});
  const int b = engine.add_task({.lane = 1, .work_us = 10, .uses = {{uplink, 10}}});
  const int c = engine.add_task({.lane = 2, .work_us = 10, .uses = {{bus, 8}}});
  const Outcome outcome = engine.run();
  EXPECT_DOUBLE_EQ(outcome.tasks[a].end_us, 20);
  EXPECT_DOUBLE_EQ(outcome.tasks[b].end_us, 20);
  EXPECT_DOUBLE_EQ(outcome.tasks[c].end_us, 10);  // 10 - 4/2 = 8: full speed
}

TEST(Engine, SpeedsChangeWhenATaskEnds) {
  Engine engine;
  const int bus = engine.add_resource("bus", 1);
  const int brief = engine.add_task({.lane = 0, .work_us = 2, .uses = {{bus, 1}}});
  const int lengthy = engine.add_task({.lane = 1, .work_us = 6, .uses = {{bus, 1}}});
  const Outcome outcome = engine.run();
  EXPECT_DOUBLE_EQ(outcome.tasks[brief].end_us, 4);    // 2 us of work at half speed
  EXPECT_DOUBLE_EQ(outcome.tasks[lengthy].end_us, 8);  // 2 done by then, 4 left at full speed
}

TEST(Engine, ARateAboveTheCapacityStretchesTheTask) {
  Engine engine;
  const int link = engine.add_resource("link", 5);
  const int task = engine.add_task({.lane = 0, .work_us = 10, .uses = {{link, 20}}});
  EXPECT_DOUBLE_EQ(engine.run().tasks[task].end_us, 40);
}

TEST(Engine, ABucketPassesWhatWasSavedUp_ThenTheResourcesOwnRate) {
  Engine engine;
  const int link = engine.add_resource("link", 1, {.size = 30, .burst_rate = 10});
  const int first = engine.add_task({.lane = 0, .work_us = 5, .uses = {{link, 10}}});  // 50 units
  const int pause = engine.add_task({.lane = 0, .latency_us = 18});
  const int second = engine.add_task({.lane = 0, .work_us = 2, .uses = {{link, 10}}});  // 20 units
  const Outcome empty = engine.run();
  EXPECT_DOUBLE_EQ(empty.tasks[first].end_us, 50);
  EXPECT_DOUBLE_EQ(empty.tasks[pause].end_us, 68);
  EXPECT_DOUBLE_EQ(empty.tasks[second].end_us, 70);  // 18 were saved, and 2 more meanwhile
  EXPECT_NEAR(empty.bucket_units[link], 0, 1e-9);
  const Outcome full = engine.run({1'000});                              // no more than its size
  EXPECT_NEAR(full.tasks[first].end_us, 30 / 9. + 50 - 300 / 9., 1e-9);  // 30 + t = 10 t; the rest at 1
  EXPECT_NEAR(full.end_us, full.tasks[first].end_us + 20, 1e-9);
  EXPECT_LE(full.busy_share[link], 1);
}

TEST(Engine, ABucketStaysFull_WhereLessIsUsedThanTheResourceCarries) {
  Engine engine;
  const int link = engine.add_resource("link", 2, {.size = 30, .burst_rate = 10});
  engine.add_task({.lane = 0, .work_us = 5, .uses = {{link, 1}}});
  engine.add_task({.lane = 1, .latency_us = 7, .work_us = 1, .uses = {{link, 10}}});
  const Outcome outcome = engine.run({30});
  EXPECT_DOUBLE_EQ(outcome.end_us, 8);
  EXPECT_DOUBLE_EQ(outcome.bucket_units[link], 22);  // 10 passed while 2 came
}

TEST(Engine, LatencyUsesNothing) {
  Engine engine;
  const int link = engine.add_resource("link", 1);
  const int waits = engine.add_task({.lane = 0, .latency_us = 10, .work_us = 1, .uses = {{link, 1}}});
  const int works = engine.add_task({.lane = 1, .work_us = 10, .uses = {{link, 1}}});
  const Outcome outcome = engine.run();
  EXPECT_DOUBLE_EQ(outcome.tasks[works].end_us, 10);
  EXPECT_DOUBLE_EQ(outcome.tasks[waits].end_us, 11);
}

// A rate near zero makes a task last longer than a clock can count.
TEST(Engine, RefusesTimesThatItsClockCannotCount) {
  for (const double work_us : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::max()}) {
    Engine engine;
    const int bus = engine.add_resource("bus", 1);
    engine.add_task({.lane = 0, .work_us = work_us, .uses = {{bus, 4}}});
    engine.add_task({.lane = 0, .work_us = work_us, .uses = {{bus, 4}}});
    EXPECT_ERROR(engine.run(), Code::kBadConfig, "clock ends before its tasks do", "fix: ");
  }
  Engine engine;
  engine.add_task({.latency_us = std::numeric_limits<double>::infinity()});
  EXPECT_ERROR(engine.run(), Code::kBadConfig, "clock ends before its tasks do");
}

TEST(Engine, NamesATaskOfACircle) {
  Engine engine;
  engine.add_task({.lane = 0, .work_us = 1, .after = {1}});
  engine.add_task({.lane = 0, .work_us = 1});
  try {
    engine.run();
    ADD_FAILURE() << "ran a circle";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_NE(error.message().find("2 of 2 tasks wait for each other"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace herd::sim
