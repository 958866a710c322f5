#include "herd/transport/local_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/transport/process_courier.h"
#include "herd/transport/thread_courier.h"
#include "tests/support/expect_error.h"

namespace herd::transport {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

SteadyTime soon() { return steady_clock::now() + 10s; }

// Two ranks as threads, by either courier: a socket does not care that both its ends are in one process.
void run_two(bool sockets, const std::function<void(LocalTransport&)>& body) {
  const auto hub = std::make_shared<ThreadHub>(2);
  const auto mesh = sockets ? make_socket_pairs(2) : std::vector<std::vector<int>>(2);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<Courier> courier;
      if (sockets)
        courier = std::make_unique<ProcessCourier>(rank, mesh[static_cast<size_t>(rank)], soon());
      else
        courier = std::make_unique<ThreadCourier>(hub, rank);
      LocalTransport transport(std::move(courier), soon());
      body(transport);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class BothCouriers : public testing::TestWithParam<bool> {};

TEST_P(BothCouriers, MapTheSameRegionOnBothRanks) {
  run_two(GetParam(), [](LocalTransport& transport) {
    const auto region = transport.allocate("r", {0, 1}, 100, soon());
    const auto channel = transport.open_channel("c", {0, 1}, soon());
    region->of(transport.rank())[3] = std::byte{static_cast<unsigned char>(10 + transport.rank())};
    const Rank peer = 1 - transport.rank();
    channel->publish_header(peer, 1, {.fingerprint = 7, .last_finished = 0});
    channel->signal(peer, 1, 1);
    while (channel->signals(peer, 1) < 1) std::this_thread::yield();
    EXPECT_EQ(channel->header(peer, 1).fingerprint, 7u);
    EXPECT_EQ(region->of(peer)[3], std::byte{static_cast<unsigned char>(10 + peer)});
  });
}

TEST_P(BothCouriers, ShowWhatTheOtherRankDoes_CutToFit) {
  run_two(GetParam(), [](LocalTransport& transport) {
    const Rank peer = 1 - transport.rank();
    EXPECT_EQ(transport.activity_of(peer), "");
    const auto channel = transport.open_channel("c", {0, 1}, soon());
    const auto meet = [&](uint32_t times) {
      channel->signal(peer, 1, times);
      while (channel->signals(peer, 1) < times) std::this_thread::yield();
    };
    meet(1);
    for (const char* activity : {"first", "second", "third"})
      transport.set_activity(activity + std::to_string(transport.rank()));
    meet(2);
    EXPECT_EQ(transport.activity_of(peer), "third" + std::to_string(peer));
    meet(3);
    transport.set_activity(std::string(1000, 'x'));
    meet(4);
    EXPECT_EQ(transport.activity_of(peer), std::string(183, 'x'));
    meet(5);
  });
}

// As a rank leaves it that is killed while it writes.
TEST(ActivityBoard, KeepsTheTextBefore_WhereTheNewestWasNotFinished) {
  alignas(64) ActivityBoard board;
  EXPECT_EQ(board.newest(), "");
  board.write("first");
  board.write("second");
  EXPECT_EQ(board.newest(), "second");
  // A text is unreadable while the first word of its slot, its number, is 0; the second of two slots begins behind
  // the count of texts and one slot of 192 bytes, and the first holds "second".
  uint64_t words[sizeof board / sizeof(uint64_t)];
  std::memcpy(words, static_cast<const void*>(&board), sizeof board);
  ASSERT_EQ(words[1], 2u);
  reinterpret_cast<std::atomic<uint64_t>*>(&board)[1].store(0);
  EXPECT_EQ(board.newest(), "first");
}

TEST_P(BothCouriers, WakeASleeperByASignal) {
  run_two(GetParam(), [](LocalTransport& transport) {
    const auto channel = transport.open_channel("c", {0, 1}, soon());
    if (transport.rank() == 0) {
      std::this_thread::sleep_for(20ms);
      channel->signal(1, 1, 1);
      while (channel->signals(1, 1) < 1) std::this_thread::yield();
      return;
    }
    const SteadyTime limit = steady_clock::now() + 5s;
    while (channel->signals(0, 1) < 1) {
      transport.announce_sleep();
      if (channel->signals(0, 1) >= 1)
        transport.cancel_sleep();
      else
        transport.sleep_until(soon());
    }
    EXPECT_LT(steady_clock::now(), limit);
    channel->signal(0, 1, 1);
  });
}

TEST_P(BothCouriers, RefuseARegionWhoseSizesDiffer) {
  for (const int64_t other : {50000, 5001}) {  // the second takes the same pages
    run_two(GetParam(), [&](LocalTransport& transport) {
      EXPECT_ERROR(transport.allocate("r", {0, 1}, transport.rank() == 0 ? 5000 : other, soon()), Code::kBadConfig,
                   "rank 1 asks for " + std::to_string(other) + " bytes, rank 0 for 5000",
                   "fix: all members ask for the same");
    });
  }
}

TEST_P(BothCouriers, CountMoreSignalsThanFitInSixteenBits) {
  run_two(GetParam(), [](LocalTransport& transport) {
    const auto channel = transport.open_channel("c", {0, 1}, soon());
    const Rank peer = 1 - transport.rank();
    const uint64_t sequence = (uint64_t{1} << 40) + 5;
    channel->signal(peer, sequence, 65536);
    while (channel->signals(peer, sequence) < 65536) std::this_thread::yield();
    EXPECT_EQ(channel->signals(peer, sequence), 65536u);
    EXPECT_EQ(channel->signals(peer, sequence + Channel::kHeaders), 0u) << "of another operation in the same slot";
    channel->signal(peer, sequence + 1, Channel::kMaxSignals);
    while (channel->signals(peer, sequence + 1) < Channel::kMaxSignals) std::this_thread::yield();
  });
}

INSTANTIATE_TEST_SUITE_P(Couriers, BothCouriers, testing::Bool());

TEST(ConnectMesh, JoinsRanksThroughTheStore_AndNamesTheOneThatNeverComes) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ProcessCourier courier(rank, connect_all_pairs(store, "a/", rank, 2, soon()), soon());
      courier.send(1 - rank, "greeting", {.text = "from " + std::to_string(rank)});
      EXPECT_EQ(courier.receive(1 - rank, "greeting", soon()).text, "from " + std::to_string(1 - rank));
      EXPECT_EQ(courier.state(1 - rank), PeerState::kAlive);
    });
  }
  for (std::thread& thread : threads) thread.join();
  try {
    connect_all_pairs(store, "b/", 0, 2, steady_clock::now() + 50ms);
    FAIL() << "a rank that does not exist was met";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 never arrived"));
  }
}

}  // namespace
}  // namespace herd::transport
