#include "herd/comm/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using comm::Connection;
using comm::Transfer;
using comm::TransferWait;
using std::chrono::steady_clock;

Buffer buffer_of(std::vector<float>& x) { return to_buffer(x, BufferTag{}); }

TEST(Connection, CarriesMessagesOfAnySizeBothWays) {
  for (const auto& host_of : {std::vector<int>{}, std::vector{0, 1}}) {
    run_inproc(
        2,
        [](Communicator& world) {
          Connection connection(world, 1 - world.rank(), "pair");
          EXPECT_EQ(connection.peer(), 1 - world.rank());
          for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 20}) {
            std::vector<float> mine(count, static_cast<float>(world.rank() + 1)), other(count);
            Transfer sent = connection.post_send(buffer_of(mine), 1);
            connection.receive(buffer_of(other), 1);
            sent.wait();
            EXPECT_EQ(other, std::vector<float>(count, static_cast<float>(2 - world.rank())));
          }
        },
        host_of);
  }
}

TEST(Connection, WaitsForAnyOfSeveralPeers) {
  run_inproc(4, [](Communicator& world) {
    std::vector<float> word = {static_cast<float>(world.rank())};
    if (world.rank() > 0) {
      Connection server(world, 0, "server");
      if (world.rank() == 2) server.send(buffer_of(word), 7);
      server.receive(buffer_of(word), 8);
      return;
    }
    std::vector<Connection> peers;
    std::vector<std::vector<float>> words(3, std::vector<float>(1));
    std::vector<Transfer> transfers;
    TransferWait wait(world);
    for (Rank peer = 1; peer < 4; ++peer) peers.emplace_back(world, peer, "server");
    for (size_t i = 0; i < 3; ++i) transfers.push_back(peers[i].post_receive(buffer_of(words[i]), 7));
    EXPECT_EQ(wait.wait_any(transfers, SteadyTime::max()), 1u);
    EXPECT_EQ(words[1][0], 2);
    transfers[1] = {};
    const auto begin = steady_clock::now();
    EXPECT_EQ(wait.wait_any(transfers, begin + 30ms), 3u) << "none of the others has come";
    EXPECT_GE(steady_clock::now() - begin, 30ms);
    std::thread other([&] {
      std::this_thread::sleep_for(20ms);
      wait.interrupt();
    });
    EXPECT_EQ(wait.wait_any(transfers, SteadyTime::max()), 3u) << "another thread has interrupted it";
    other.join();
    for (Connection& peer : peers) peer.send(buffer_of(word), 8);
  });
}

TEST(Connection, FailsAlone) {
  std::latch failed(2);
  run_inproc(3, [&](Communicator& world) {
    std::vector<float> word(1);
    std::optional<Connection> with_next, with_last;
    if (world.rank() != 2) with_next.emplace(world, 1 - world.rank(), "a");
    if (world.rank() != 1) with_last.emplace(world, 2 - world.rank(), "b");
    if (world.rank() == 1) with_next->abort("it has had enough");
    if (world.rank() == 0) {
      EXPECT_ERROR(with_next->receive(buffer_of(word), 1), Code::kAborted, "rank 1 aborted: it has had enough");
    }
    if (world.rank() != 2) failed.count_down();
    failed.wait();
    if (world.rank() == 0) with_last->send(buffer_of(word), 1);
    if (world.rank() == 2) with_last->receive(buffer_of(word), 1);
    world.barrier();
  });
}

std::chrono::nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::nanoseconds kOfAMessage = 1ms;
#else
constexpr std::chrono::nanoseconds kOfAMessage = 50us;
#endif

// As the records of a long message do over a slow network. It yields its core for 100 us where waits are short.
TEST(Connection, SleepsAtOnceBetweenMessagesThatComeSlowly) {
  constexpr int kFirst = 50, kMessages = 200;
  expect_within(kOfAMessage, [&] {
    std::chrono::nanoseconds each{};
    run_inproc(2, [&](Communicator& world) {
      Connection connection(world, 1 - world.rank(), "pair");
      std::vector<float> word(1);
      std::chrono::nanoseconds begin{};
      for (int i = 0; i < kFirst + kMessages; ++i) {
        if (i == kFirst) begin = processor_time();
        if (world.rank() == 0) {
          connection.receive(buffer_of(word), 1);
        } else {
          std::this_thread::sleep_for(500us);
          connection.send(buffer_of(word), 1);
        }
      }
      if (world.rank() == 0) each = (processor_time() - begin) / kMessages;
      world.barrier();
    });
    return each;
  });
}

TEST(Connection, NamesAPeerThatLeaves) {
  run_inproc(2, [](Communicator& world) {
    std::vector<float> word(1);
    Connection connection(world, 1 - world.rank(), "pair");
    if (world.rank() == 1) return;
    EXPECT_ERROR(connection.receive(buffer_of(word), 1), Code::kPeerLost, "rank 1");
  });
}

TEST(Connection, JoinsNoRankToItself) {
  run_inproc(1, [](Communicator& world) {
    EXPECT_ERROR(Connection(world, 0, "pair"), Code::kBadConfig, "rank 0 of 1", "the peer is rank 0");
    EXPECT_ERROR(Connection(world, 1, "pair"), Code::kBadConfig, "the peer is rank 1");
  });
}

}  // namespace
}  // namespace herd
