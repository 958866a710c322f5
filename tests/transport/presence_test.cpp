#include "herd/transport/presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>

#include "herd/base/error.h"

namespace herd::transport {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::ElementsAre;
using testing::HasSubstr;

// Notes what is said; the test says what comes back.
class NotedWire final : public Wire {
 public:
  std::string_view name() const override { return "noted"; }
  std::string address() const override { return ""; }
  std::string description() const override { return "a noted wire"; }
  void connect(std::vector<std::string>) override {}
  void receive_by(Handler) override {}
  void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte>) override {
    said.push_back({to, header.kind});
  }
  void send(Rank, const FrameHeader&, std::span<const std::byte>, const std::shared_ptr<int>&) override {}
  bool progress() override { return false; }
  bool arm() override { return false; }
  int descriptor() const override { return -1; }
  void wait(std::chrono::milliseconds) override {}
  std::string lost(Rank peer) const override { return peer == lost_rank ? "cut" : ""; }

  std::vector<std::pair<Rank, FrameKind>> said;
  Rank lost_rank = -1;
};

// Rank 1 of three, each on its own host; `incoming` arrive one a turn.
struct RankOne {
  void hear(Rank from, FrameKind kind) {
    FrameHeader header;
    header.from = from;
    header.kind = kind;
    presence.hear(header);
  }
  NotedWire wire;
  std::deque<std::pair<Rank, FrameKind>> incoming;
  Presence presence = Presence(
      wire, 1, 3, {0, 2},
      [](Rank, FrameKind kind) {
        FrameHeader header;
        header.kind = kind;
        return header;
      },
      [this] {
        if (incoming.empty()) return false;
        const auto [from, kind] = incoming.front();
        incoming.pop_front();
        hear(from, kind);
        return true;
      });
};

SteadyTime soon() { return steady_clock::now() + 300ms; }

TEST(Presence, GreetsHigherRanksFirst_AndLowerRanksOnceTheyHaveSaidHello) {
  RankOne one;
  one.incoming = {{2, FrameKind::kHeard}, {2, FrameKind::kHello}, {0, FrameKind::kHello}, {0, FrameKind::kHeard}};
  one.presence.meet(steady_clock::now() + 10s);
  EXPECT_THAT(one.wire.said, ElementsAre(std::pair(2, FrameKind::kHello), std::pair(2, FrameKind::kHeard),
                                         std::pair(0, FrameKind::kHeard), std::pair(0, FrameKind::kHello)));
}

std::string error_of_meeting(RankOne& one) {
  try {
    one.presence.meet(soon());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Presence, NamesTheRankThatDoesNotAnswer_AndTheFix) {
  RankOne one;
  one.incoming = {{0, FrameKind::kHello}, {0, FrameKind::kHeard}, {2, FrameKind::kHello}};
  const std::string error = error_of_meeting(one);
  EXPECT_THAT(error, HasSubstr("kTimeout: rank 2 can't be reached from rank 1 by a noted wire: no answer"));
  EXPECT_THAT(error, HasSubstr("fix: HERD_NETWORK"));
}

TEST(Presence, NamesTheRankWhoseConnectionEndedWhileTheyMet) {
  RankOne one;
  one.wire.lost_rank = 0;
  EXPECT_THAT(error_of_meeting(one), HasSubstr("kPeerLost: rank 0 can't be reached from rank 1 by a noted wire: cut"));
}

TEST(Presence, PartsOnceAllHaveAnswered_OrEnd_OrAreLost) {
  for (const auto end : {FrameKind::kHeard, FrameKind::kBye}) {
    RankOne one;
    one.wire.lost_rank = 0;
    one.incoming = {{2, end}};
    const auto begin = steady_clock::now();
    one.presence.part(10s);
    EXPECT_LT(steady_clock::now() - begin, 5s);
    EXPECT_EQ(one.wire.said.front(), std::pair(2, FrameKind::kBye)) << "a lost rank is told nothing";
    EXPECT_EQ(one.presence.left(2), end == FrameKind::kBye);
  }
}

TEST(Presence, WaitsNoLongerThanItsPatience_ForARankThatIsStopped) {
  RankOne one;
  one.incoming = {{0, FrameKind::kHeard}};
  const auto begin = steady_clock::now();
  one.presence.part(50ms);
  EXPECT_GE(steady_clock::now() - begin, 50ms);
  EXPECT_FALSE(one.presence.left(2));
}

TEST(Presence, AnswersALastWord_SoThatItsSpeakerMayEnd) {
  RankOne one;
  one.hear(2, FrameKind::kBye);
  EXPECT_THAT(one.wire.said, ElementsAre(std::pair(2, FrameKind::kHeard)));
  EXPECT_TRUE(one.presence.left(2));
  EXPECT_FALSE(one.presence.left(0));
}

}  // namespace
}  // namespace herd::transport
