#include "herd/transport/inbox.h"

#include <gtest/gtest.h>

#include <string>

namespace herd::transport {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

struct Receive {
  Receive(Traffic traffic, uint64_t tag, size_t bytes) : text(bytes, '.') {
    message.traffic = traffic;
    message.data = reinterpret_cast<std::byte*>(text.data());
    message.envelope = {tag, bytes, 0};
  }
  std::string text;
  Message message;
};

TEST(Inbox, KeepsWhatNobodyWaitsForYet_AndCountsItOnlyWhenItIsTaken) {
  Inbox inbox(Traffic::kCollective);
  inbox.arrive({5, 6, 0}, 0, bytes_of("abc"));
  inbox.arrive({5, 6, 0}, 3, bytes_of("def"));
  EXPECT_EQ(inbox.taken(), 0u);
  Receive one(Traffic::kCollective, 5, 6);
  inbox.post(one.message);
  EXPECT_TRUE(one.message.done);
  EXPECT_EQ(one.text, "abcdef");
  EXPECT_EQ(inbox.taken(), 6 + 2 * Inbox::kPieceCharge);
}

TEST(Inbox, AnotherFingerprintIsAMismatchBeforeDataMoves_AndEndsTheLane) {
  Inbox inbox(Traffic::kCollective);
  Receive one(Traffic::kCollective, 5, 3);
  inbox.post(one.message);
  inbox.arrive({6, 3, 0}, 0, bytes_of("abc"));
  EXPECT_TRUE(one.message.mismatch);
  EXPECT_FALSE(one.message.done);
  EXPECT_EQ(one.message.received_envelope.tag, 6u);
  inbox.arrive({5, 3, 0}, 0, bytes_of("abc"));
  EXPECT_EQ(one.text, "...");
}

TEST(Inbox, MessagesMakeWayForTheTagThatIsWaitedFor) {
  Inbox inbox(Traffic::kPointToPoint);
  Receive second(Traffic::kPointToPoint, 2, 2), first(Traffic::kPointToPoint, 1, 3),
      third(Traffic::kPointToPoint, 1, 1);
  inbox.post(second.message);
  inbox.arrive({1, 3, 0}, 0, bytes_of("ab"));
  inbox.post(first.message);  // while its message is arriving
  inbox.arrive({1, 3, 0}, 2, bytes_of("c"));
  inbox.arrive({1, 1, 0}, 0, bytes_of("x"));
  inbox.arrive({2, 2, 0}, 0, bytes_of("yz"));
  inbox.post(third.message);
  EXPECT_EQ(first.text + second.text + third.text, "abcyzx");
  EXPECT_TRUE(first.message.done && second.message.done && third.message.done);
}

TEST(Inbox, SeeksATagBehindMessagesThatNobodyWaitsFor) {
  Inbox inbox(Traffic::kPointToPoint);
  inbox.arrive({1, 3, 0}, 0, bytes_of("abc"));
  EXPECT_FALSE(inbox.has_unclaimed_message(2));
  inbox.arrive({2, 2, 0}, 0, bytes_of("y"));
  EXPECT_TRUE(inbox.has_unclaimed_message(2)) << "it has begun to arrive";
  EXPECT_TRUE(inbox.has_unclaimed_message(1));
  Receive second(Traffic::kPointToPoint, 2, 2), first(Traffic::kPointToPoint, 1, 3);
  inbox.post(second.message);
  EXPECT_FALSE(inbox.has_unclaimed_message(2)) << "the posted receive takes it";
  inbox.arrive({2, 2, 0}, 1, bytes_of("z"));
  inbox.post(first.message);
  EXPECT_EQ(first.text + second.text, "abcyz");
}

TEST(Inbox, PiecesThatFitNoMessageAreIgnored) {
  Inbox inbox(Traffic::kCollective);
  Receive one(Traffic::kCollective, 5, 4);
  inbox.post(one.message);
  inbox.arrive({5, 4, 0}, 0, bytes_of("ab"));
  inbox.arrive({5, 4, 0}, 0, bytes_of("zz"));      // not where it goes on
  inbox.arrive({5, 4, 0}, 2, bytes_of("cdefgh"));  // longer than the message
  EXPECT_EQ(one.text, "ab..");
  inbox.arrive({5, 4, 0}, 2, bytes_of("cd"));
  EXPECT_EQ(one.text, "abcd");
}

TEST(Inbox, TakesNothingMoreOnceItsMessagesAreDropped) {
  Inbox inbox(Traffic::kCollective);
  Receive one(Traffic::kCollective, 5, 2);
  inbox.post(one.message);
  inbox.drop();
  inbox.arrive({5, 2, 0}, 0, bytes_of("ab"));
  EXPECT_EQ(one.text, "..");
}

}  // namespace
}  // namespace herd::transport
