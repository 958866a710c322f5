#include "herd/transport/byte_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

namespace herd::transport {
namespace {

struct Ring {
  RingCounters counters;
  std::array<std::byte, 256> bytes{};
  RingWriter writer{&counters, bytes.data(), bytes.size()};
  RingReader reader{&counters, bytes.data(), bytes.size()};
};

TEST(ByteRing, IsEmptyAtFirstAndFullAtItsCapacity) {
  Ring ring;
  EXPECT_TRUE(ring.reader.available(64).empty());
  EXPECT_EQ(ring.writer.space(1000).size(), 256u);
  ring.writer.publish(256);
  EXPECT_TRUE(ring.writer.space(64).empty());
  EXPECT_EQ(ring.reader.available(1000).size(), 256u);
  ring.reader.release(64);
  EXPECT_EQ(ring.writer.space(64).size(), 64u);
}

TEST(ByteRing, GivesOnePieceAtATimeWhereItWraps) {
  Ring ring;
  ring.writer.publish(192);
  ring.reader.available(192);
  ring.reader.release(192);
  EXPECT_EQ(ring.writer.space(128).size(), 64u);
  ring.writer.publish(64);
  EXPECT_EQ(ring.writer.space(128).data(), ring.bytes.data());
}

TEST(ByteRing, KeepsTheOrderOfAMillionWordsBetweenTwoThreads) {
  Ring ring;
  constexpr uint64_t kWords = 1 << 18;
  std::thread writer([&] {
    for (uint64_t word = 0; word < kWords;) {
      const auto space = ring.writer.space(64);
      if (space.size() < 8) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(space.data(), &word, 8);
      ring.writer.publish(8);
      ++word;
    }
  });
  bool in_order = true;
  for (uint64_t word = 0; word < kWords;) {
    const auto here = ring.reader.available(64);
    if (here.size() < 8) {
      std::this_thread::yield();
      continue;
    }
    uint64_t got = 0;
    std::memcpy(&got, here.data(), 8);
    in_order &= got == word++;
    ring.reader.release(8);
  }
  writer.join();
  EXPECT_TRUE(in_order);
}

}  // namespace
}  // namespace herd::transport
