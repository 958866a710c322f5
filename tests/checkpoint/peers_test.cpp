#include "herd/checkpoint/peers.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

using namespace std::chrono_literals;

TEST(StorePeers, TextsReachRankZeroAndComeBack_AndTheStoreIsLeftEmpty) {
  MemoryStore store;
  constexpr int kRanks = 5;
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      StorePeers peers(store, rank, kRanks, "save", 10s);
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(peers.broadcast_from_root(rank == 0 ? "folder " + std::to_string(round) : "no"),
                  "folder " + std::to_string(round));
        const auto texts = peers.gather_to_root("part " + std::to_string(rank));
        EXPECT_EQ(texts.size(), rank == 0 ? 5u : 0u);
        for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], "part " + std::to_string(i));
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  for (int exchange = 0; exchange < 6; ++exchange) {
    const std::string key = "save/" + std::to_string(exchange);
    EXPECT_EQ(store.add(key + "/read", 0), 0) << "erased";
    EXPECT_ERROR(store.get(key, std::chrono::steady_clock::now()), Code::kTimeout, key);
  }
}

TEST(StorePeers, ARankThatDoesNotComeIsATimeout) {
  MemoryStore store;
  StorePeers root(store, 0, 2, "save", 5ms);
  EXPECT_ERROR(root.gather_to_root("mine"), Code::kTimeout, "save/0/1");
}

}  // namespace
}  // namespace herd
