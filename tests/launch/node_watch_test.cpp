// Which nodes of a job are lost, from the times of their clients; no store, no process.
#include "herd/launch/node_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const SteadyTime kBegun = SteadyTime{} + 1000s;

ClientState seen_client(int rank, SteadyTime heard) {
  return {.rank = rank, .size = 2, .location = "process 7 on b", .last_heard = heard, .joined = kBegun - 1s};
}

// Looks every 0.2 s from `from` to `to`, as a launcher does, and returns what it found last.
std::optional<LostNode> look(NodeWatch& watch, const std::vector<ClientState>& launchers,
                             const std::vector<ClientState>& ranks, SteadyTime from, SteadyTime to,
                             std::chrono::milliseconds silence) {
  std::optional<LostNode> lost;
  for (SteadyTime now = from; now <= to && !lost; now += 200ms)
    lost = watch.find_lost(launchers, ranks, {false, true}, silence, now);
  return lost;
}

NodeWatch new_watch() {
  NodeWatch watch(2, 2);
  watch.begin(kBegun);
  return watch;
}

TEST(NodeWatch, ALauncherWhoseConnectionClosedIsGoneAfterTwoSeconds) {
  ClientState launcher = seen_client(1, kBegun);
  launcher.disconnected = kBegun;
  NodeWatch watch = new_watch();
  EXPECT_FALSE(look(watch, {seen_client(0, kBegun), launcher}, {}, kBegun, kBegun + 1900ms, 60s));
  const auto lost = look(watch, {seen_client(0, kBegun), launcher}, {}, kBegun + 2s, kBegun + 2s, 60s);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->node, 1);
  EXPECT_EQ(lost->since, kBegun);
  EXPECT_THAT(lost->reason, HasSubstr("node 1 is gone: the connection of its launcher (process 7 on b) was closed"));
}

TEST(NodeWatch, ASilentNodeIsLostOnlyAfterTheTimeThatItsOperationsHave) {
  const std::vector<ClientState> launchers = {seen_client(0, kBegun), seen_client(1, kBegun)};
  NodeWatch patient = new_watch(), watch = new_watch();
  EXPECT_FALSE(look(patient, launchers, {}, kBegun, kBegun + 9s, 10s));
  const auto lost = look(watch, launchers, {}, kBegun, kBegun + 9s, 5s);
  ASSERT_TRUE(lost);
  EXPECT_TRUE(lost->is_silent);
  EXPECT_THAT(lost->reason,
              HasSubstr("node 1 is silent: its launcher (process 7 on b) and its ranks have sent nothing"));
}

TEST(NodeWatch, AStoppedLauncherWhoseRanksLiveIsNoLostNode) {
  const std::vector<ClientState> launchers = {seen_client(0, kBegun), seen_client(1, kBegun)};
  NodeWatch watch = new_watch();
  EXPECT_FALSE(look(watch, launchers, {seen_client(2, kBegun + 8s)}, kBegun, kBegun + 9s, 5s));
  NodeWatch other = new_watch();
  EXPECT_TRUE(look(other, launchers, {seen_client(1, kBegun + 8s)}, kBegun, kBegun + 9s, 5s)) << "rank 1 is of node 0";
}

TEST(NodeWatch, TimeThatThisProcessStoodStillIsNoSilenceOfOthers) {
  const std::vector<ClientState> launchers = {seen_client(0, kBegun), seen_client(1, kBegun)};
  NodeWatch watch = new_watch();
  EXPECT_FALSE(look(watch, launchers, {}, kBegun, kBegun, 5s));
  EXPECT_FALSE(look(watch, launchers, {}, kBegun + 60s, kBegun + 64s, 5s)) << "stopped for a minute itself";
  EXPECT_TRUE(look(watch, launchers, {}, kBegun + 64s, kBegun + 66s, 5s));
}

TEST(NodeWatch, ALauncherThatLeftOrTookANumberLaterIsNotTheOneThatBegan) {
  ClientState left = seen_client(1, kBegun + 1s), new_one = seen_client(1, kBegun + 1s);
  left.left = true;
  new_one.joined = kBegun + 1s;
  NodeWatch watch = new_watch();
  EXPECT_THAT(watch.find_lost({left}, {}, {false, true}, 60s, kBegun + 1s)->reason, HasSubstr("has left"));
  EXPECT_THAT(watch.find_lost({new_one}, {}, {false, true}, 60s, kBegun + 1s)->reason,
              HasSubstr("was started while the job ran"));
  EXPECT_THAT(watch.find_lost({}, {}, {false, true}, 60s, kBegun + 1s)->reason, HasSubstr("never said hello"));
  EXPECT_FALSE(watch.find_lost({}, {}, {false, false}, 60s, kBegun + 1s)) << "nobody waits for it";
}

}  // namespace
}  // namespace herd::launch
