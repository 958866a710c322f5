#include "herd/transport/thread_wire.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <string>
#include <vector>

namespace herd::transport {
namespace {

using namespace std::chrono_literals;

bool shows_input(const Wire& wire) {
  pollfd one = {wire.descriptor(), POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct TwoRanks {
  std::shared_ptr<ThreadWireQueues> queues = std::make_shared<ThreadWireQueues>(2);
  std::unique_ptr<ThreadWire> sender = std::make_unique<ThreadWire>(queues, 0);
  ThreadWire receiver{queues, 1};
  std::vector<std::vector<std::byte>> arrived;
  TwoRanks() {
    receiver.set_handler([this](const FrameHeader& header, std::span<const std::byte> payload) {
      EXPECT_EQ(header.from, 0);
      arrived.push_back({payload.begin(), payload.end()});
    });
  }
  void say(const std::string& text) {
    FrameHeader header;
    header.from = 0;
    sender->send_copy(1, header, bytes_of(text));
  }
};

TEST(ThreadWire, HandsFramesOverInOrder_WhateverBecomesOfTheSendersMemory) {
  TwoRanks two;
  std::vector<std::byte> piece(static_cast<size_t>(Wire::kPieceBytes), std::byte{1});
  const auto in_flight = std::make_shared<int>(0);
  FrameHeader header;
  header.from = 0;
  two.say("first");
  two.sender->send(1, header, piece, in_flight);
  EXPECT_EQ(*in_flight, 0);
  piece.assign(piece.size(), std::byte{2});
  EXPECT_TRUE(two.receiver.progress());
  EXPECT_FALSE(two.receiver.progress());
  ASSERT_EQ(two.arrived.size(), 2u);
  EXPECT_EQ(two.arrived[0], bytes_of("first"));
  EXPECT_EQ(two.arrived[1], std::vector(piece.size(), std::byte{1}));
}

TEST(ThreadWire, ShowsInputFromTheFirstFrameOn_UntilArmedWithNone) {
  TwoRanks two;
  EXPECT_TRUE(two.receiver.arm());
  EXPECT_FALSE(shows_input(two.receiver));
  two.say("one");
  two.say("two");
  EXPECT_TRUE(shows_input(two.receiver));
  EXPECT_FALSE(two.receiver.arm());
  EXPECT_TRUE(shows_input(two.receiver));
  EXPECT_TRUE(two.receiver.progress());
  EXPECT_TRUE(two.receiver.arm());
  EXPECT_FALSE(shows_input(two.receiver));
  two.say("three");
  EXPECT_TRUE(shows_input(two.receiver));
}

TEST(ThreadWire, LosesAPeerThatEnds_AfterAllThatItSent) {
  TwoRanks two;
  for (int i = 0; i < 16; ++i) two.say("before");
  two.sender.reset();
  EXPECT_TRUE(two.receiver.progress());
  EXPECT_EQ(two.arrived.size(), 16u);
  EXPECT_EQ(two.receiver.lost(0), "");
  EXPECT_TRUE(two.receiver.progress());
  EXPECT_EQ(two.receiver.lost(0), "its thread has ended");
}

}  // namespace
}  // namespace herd::transport
