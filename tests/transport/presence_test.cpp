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

// Records the frames that are sent; the test makes those that arrive.
class RecordingWire final : public Wire {
 public:
  std::string_view name() const override { return "recording"; }
  std::string address() const override { return ""; }
  std::string description() const override { return "a recording wire"; }
  void connect(std::vector<std::string>) override {}
  void set_handler(Handler) override {}
  void send_copy(Rank to, const FrameHeader& header, std::span<const std::byte>) override {
    sent.push_back({to, header.kind});
  }
  void send(Rank, const FrameHeader&, std::span<const std::byte>, const std::shared_ptr<int>&) override {}
  bool progress() override { return false; }
  bool arm() override { return false; }
  int descriptor() const override { return -1; }
  void wait(std::chrono::milliseconds) override {}
  std::string lost(Rank peer) const override { return peer == lost_rank ? "cut" : ""; }

  std::vector<std::pair<Rank, FrameKind>> sent;
  Rank lost_rank = -1;
};

// Rank 1 of three, each on its own host; one of `incoming` arrives at each call of progress_or_wait.
struct RankOne {
  void receive(Rank from, FrameKind kind) {
    FrameHeader header;
    header.from = from;
    header.kind = kind;
    presence.on_frame(header);
  }
  RecordingWire wire;
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
        receive(from, kind);
        return true;
      });
};

SteadyTime soon() { return steady_clock::now() + 300ms; }

TEST(Presence, GreetsHigherRanksFirst_AndLowerRanksOnceTheyHaveSaidHello) {
  RankOne one;
  one.incoming = {
      {2, FrameKind::kAcknowledge}, {2, FrameKind::kHello}, {0, FrameKind::kHello}, {0, FrameKind::kAcknowledge}};
  one.presence.join(steady_clock::now() + 10s);
  EXPECT_THAT(one.wire.sent, ElementsAre(std::pair(2, FrameKind::kHello), std::pair(2, FrameKind::kAcknowledge),
                                         std::pair(0, FrameKind::kAcknowledge), std::pair(0, FrameKind::kHello)));
}

std::string error_of_joining(RankOne& one) {
  try {
    one.presence.join(soon());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Presence, NamesTheRankThatDoesNotAnswer_AndTheFix) {
  RankOne one;
  one.incoming = {{0, FrameKind::kHello}, {0, FrameKind::kAcknowledge}, {2, FrameKind::kHello}};
  const std::string error = error_of_joining(one);
  EXPECT_THAT(error, HasSubstr("kTimeout: rank 2 can't be reached from rank 1 by a recording wire: no answer"));
  EXPECT_THAT(error, HasSubstr("fix: the same HERD_TOKEN on every rank, and HERD_NETWORK"));
}

TEST(Presence, NamesTheRankWhoseConnectionEnded_WhileItJoins) {
  RankOne one;
  one.wire.lost_rank = 0;
  EXPECT_THAT(error_of_joining(one),
              HasSubstr("kPeerLost: rank 0 can't be reached from rank 1 by a recording wire: cut"));
}

TEST(Presence, LeavesOnceAllHaveAcknowledged_OrLeave_OrAreLost) {
  for (const auto end : {FrameKind::kAcknowledge, FrameKind::kBye}) {
    RankOne one;
    one.wire.lost_rank = 0;
    one.incoming = {{2, end}};
    const auto begin = steady_clock::now();
    one.presence.leave(10s);
    EXPECT_LT(steady_clock::now() - begin, 5s);
    EXPECT_EQ(one.wire.sent.front(), std::pair(2, FrameKind::kBye)) << "a lost rank is told nothing";
    EXPECT_EQ(one.presence.has_left(2), end == FrameKind::kBye);
  }
}

TEST(Presence, WaitsNoLongerThanTheTimeout_ForARankThatIsStopped) {
  RankOne one;
  one.incoming = {{0, FrameKind::kAcknowledge}};
  const auto begin = steady_clock::now();
  one.presence.leave(50ms);
  EXPECT_GE(steady_clock::now() - begin, 50ms);
  EXPECT_FALSE(one.presence.has_left(2));
}

TEST(Presence, AcknowledgesABye_SoThatItsSenderMayEnd) {
  RankOne one;
  one.receive(2, FrameKind::kBye);
  EXPECT_THAT(one.wire.sent, ElementsAre(std::pair(2, FrameKind::kAcknowledge)));
  EXPECT_TRUE(one.presence.has_left(2));
  EXPECT_FALSE(one.presence.has_left(0));
}

}  // namespace
}  // namespace herd::transport
