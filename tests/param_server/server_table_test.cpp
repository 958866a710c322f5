#include "herd/param_server/server_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "herd/sim/engine.h"
#include "tests/support/expect_error.h"

namespace herd {
namespace {

using param_server::ServerTable;

constexpr double kNoRate = std::numeric_limits<double>::quiet_NaN();

ServerTable table_of(int num_workers, ServerOptions options) {
  options.optimizer = kernels::SgdHyper{.rate = 1};
  return ServerTable(KeyTable{{.elements = 3}}, 0, 1, num_workers, std::move(options));
}

void push(ServerTable& table, int worker, float value, double rate = kNoRate) {
  table.check_push(worker, 0);
  auto gradient = table.take_buffer(0);
  for (int i = 0; i < 3; ++i) gradient[i] = value;
  table.push(worker, 0, std::move(gradient), rate);
}

TEST(ServerTable, AveragesARoundOnceAllWorkersHavePushed) {
  ServerTable table = table_of(2, {});
  push(table, 1, 3);
  EXPECT_FALSE(table.pull(1, 0)) << "worker 0 has not pushed";
  EXPECT_EQ(table.pull(0, 0)->version, 0) << "worker 0 has pushed nothing, so version 0 is fresh enough";
  EXPECT_EQ(table.missing(0), std::vector<int>{0});
  push(table, 0, 1);
  const auto snapshot = table.pull(1, 0);
  EXPECT_EQ(snapshot->version, 1);
  EXPECT_EQ(snapshot->weights[2], -2);
}

// Sums in another order have other bits: 1e8 + 1 - 1e8 is 0 in fp32, 1e8 - 1e8 + 1 is 1.
TEST(ServerTable, SumsInTheOrderOfWorkers_WhateverTheOrderOfPushes) {
  for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    ServerTable table = table_of(3, {});
    const float values[] = {1e8f, -1e8f, 3};
    for (int worker : order) push(table, worker, values[worker]);
    EXPECT_EQ(table.pull(0, 0)->weights[0], -1);
  }
}

TEST(ServerTable, LetsAWorkerRunAheadByTheStalenessAlone) {
  for (int staleness : {0, 1, 3}) {
    ServerTable table = table_of(2, {.staleness = staleness});
    for (int round = 0; round < staleness; ++round) {
      push(table, 0, 1);
      EXPECT_TRUE(table.pull(0, 0));
    }
    push(table, 0, 1);
    EXPECT_FALSE(table.pull(0, 0)) << "staleness " << staleness;
    EXPECT_ERROR(table.check_push(0, 0), Code::kBadConfig, "worker 0 is beyond the bound", "version 0",
                 "at most " + std::to_string(staleness), "fix: pull");
    for (int round = 0; round <= staleness; ++round) {
      push(table, 1, 1);
      EXPECT_EQ(table.pull(1, 0)->version, round + 1);
    }
    EXPECT_EQ(table.pull(0, 0)->version, staleness + 1);
  }
}

// Each push counts at once, and the bound is on how many of them a worker is ahead.
TEST(ServerTable, UpdatesAtEachPushWithinTheBound_WhereEachPushIsAnUpdate) {
  for (const int staleness : {0, 1, 3}) {
    ServerTable table = table_of(3, {.staleness = staleness, .each_push = true});
    for (int round = 0; round < staleness; ++round) {
      push(table, 0, 1);
      const auto ahead = table.pull(0, 0);
      ASSERT_TRUE(ahead);
      EXPECT_EQ(ahead->version, round + 1);
      EXPECT_EQ(ahead->weights[1], -(round + 1)) << "its own pushes count at once";
      EXPECT_EQ(ahead->staleness, round + 1);
    }
    push(table, 0, 1);
    EXPECT_FALSE(table.pull(0, 0)) << "staleness " << staleness;
    EXPECT_EQ(table.missing(0), (std::vector<int>{1, 2}));
    EXPECT_ERROR(table.check_push(0, 0), Code::kBadConfig, "worker 0 is beyond the bound", "round 0",
                 "at most " + std::to_string(staleness), "fix: pull");
    push(table, 1, 1);
    EXPECT_EQ(table.pull(1, 0).has_value(), staleness > 0);
    EXPECT_FALSE(table.pull(0, 0)) << "worker 2 has not pushed";
    push(table, 2, 1);
    const auto snapshot = table.pull(0, 0);
    ASSERT_TRUE(snapshot);
    EXPECT_EQ(snapshot->version, staleness + 3);
    EXPECT_EQ(snapshot->weights[0], -(staleness + 3));
    EXPECT_EQ(snapshot->staleness, staleness);
  }
}

TEST(ServerTable, GoesOnWithoutALostWorker_WhereEachPushIsAnUpdate) {
  ServerTable table = table_of(3, {.staleness = 1, .each_push = true});
  push(table, 1, 1);
  for (int round = 0; round < 2; ++round) push(table, 0, 1), table.pull(0, 0);
  EXPECT_FALSE(table.pull(0, 0)) << "worker 2 has pushed nothing";
  table.remove_worker(2, "killed");
  EXPECT_EQ(table.pull(0, 0)->version, 3);
}

TEST(ServerTable, UpdatesAtEachPush_WhereItIsAsynchronous) {
  ServerTable table = table_of(2, {.staleness = kAsynchronous});
  for (int i = 0; i < 5; ++i) push(table, 0, 1);
  EXPECT_EQ(table.pull(1, 0)->version, 5);
  EXPECT_EQ(table.pull(1, 0)->weights[0], -5);
}

TEST(ServerTable, AddsARound_WhereItDoesNotAverage) {
  ServerTable table = table_of(2, {.average = false});
  push(table, 0, 1);
  push(table, 1, 3);
  EXPECT_EQ(table.pull(0, 0)->weights[0], -4);
}

// A server that goes on where another has stopped has the bits of one that never stopped, whatever it holds of a key.
TEST(ServerTable, GoesOnWithMomentsThatItIsGiven) {
  const std::vector<kernels::ElementRange> decay = {{0, 700}, {1500, 2500}};
  const KeyTable keys{{.elements = 3000, .decay = decay}};
  const auto gradient_of = [](int round, int64_t i) { return static_cast<float>((i * 7 + round) % 5) - 2.0f; };
  std::vector<float> expected(3000);
  for (int64_t i = 0; i < 3000; ++i) expected[static_cast<size_t>(i)] = 0.01f * static_cast<float>(i % 11);
  std::vector<float> weights = expected, m(3000), v(3000), m2(3000), v2(3000);
  for (int t = 1; t <= 4; ++t) {
    std::vector<float> g(3000);
    for (int64_t i = 0; i < 3000; ++i) g[static_cast<size_t>(i)] = gradient_of(t, i);
    kernels::adamw({expected.data(), g.data(), m.data(), v.data(), 3000, 0}, {.t = t}, decay);
  }
  for (const int64_t before : {0, 2}) {
    for (int server = 0; server < 2; ++server) {
      const kernels::ElementRange piece = keys.piece(0, server, 2);
      ServerTable table(
          keys, server, 2, 1,
          {.optimizer = kernels::AdamWHyper{},
           .initial = [&](int64_t, int64_t first,
                          std::span<float> out) { std::copy_n(weights.begin() + first, out.size(), out.begin()); },
           .updates_before = before,
           .moments =
               [&](int64_t, int k) {
                 return std::span(k == 0 ? m2 : v2)
                     .subspan(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.size()));
               }});
      for (int t = static_cast<int>(before) + 1; t <= before + 2; ++t) {
        auto gradient = table.take_buffer(0);
        for (int64_t i = 0; i < piece.size(); ++i) gradient[i] = gradient_of(t, piece.begin + i);
        table.push(0, 0, std::move(gradient), kNoRate);
      }
      std::copy_n(table.pull(0, 0)->weights.get(), piece.size(), weights.begin() + piece.begin);
    }
  }
  EXPECT_EQ(weights, expected);
  EXPECT_EQ(m2, m);
  EXPECT_EQ(v2, v);
}

TEST(ServerTable, TakesTheRateOfTheRound) {
  ServerTable table = table_of(1, {});
  push(table, 0, 1, 0.25);
  EXPECT_EQ(table.pull(0, 0)->weights[0], -0.25f);
}

TEST(ServerTable, WritesNoUpdateIntoWeightsThatAreUnderWay) {
  ServerTable table = table_of(1, {.staleness = 1});
  const auto before = table.pull(0, 0);
  push(table, 0, 1);
  EXPECT_EQ(before->weights[0], 0);
  EXPECT_EQ(table.pull(0, 0)->weights[0], -1);
}

TEST(ServerTable, FailsForAll_WhenAWorkerIsLost) {
  ServerTable table = table_of(2, {});
  table.remove_worker(1, "worker 1 is lost: killed");
  EXPECT_ERROR(table.pull(0, 0), Code::kPeerLost, "worker 1 is lost: killed");
  EXPECT_ERROR(table.check_push(0, 0), Code::kPeerLost, "worker 1 is lost: killed");
}

TEST(ServerTable, GoesOnWithTheOthers_WhenAWorkerLeavesOrMayBeLost) {
  for (const bool left : {true, false}) {
    ServerTable table = table_of(3, {.survive_lost_workers = !left});
    push(table, 0, 1);
    push(table, 1, 2);
    EXPECT_FALSE(table.pull(0, 0));
    table.remove_worker(2, left ? "" : "worker 2 is lost");
    EXPECT_EQ(table.pull(0, 0)->version, 1);
    EXPECT_EQ(table.pull(0, 0)->weights[0], -1.5f);
  }
}

TEST(ServerTable, StepsAdamWWithTheMomentsOfItsPiece) {
  const int64_t n = 5000;
  const KeyTable keys{{.elements = n}};
  std::vector<float> weights(n, 1), moment1(n), moment2(n), gradient(n);
  const kernels::AdamWHyper hyper{.rate = 0.1};
  std::vector<ServerTable> servers;
  for (int server = 0; server < 3; ++server) {
    servers.emplace_back(keys, server, 3, 1,
                         ServerOptions{.optimizer = hyper, .initial = [](int64_t, int64_t, std::span<float> w) {
                                         std::fill(w.begin(), w.end(), 1.0f);
                                       }});
  }
  const kernels::ElementRange all{0, n};
  for (int64_t t = 1; t <= 3; ++t) {
    for (int64_t i = 0; i < n; ++i) gradient[static_cast<size_t>(i)] = std::sin(static_cast<float>(i * t));
    kernels::AdamWHyper now = hyper;
    now.t = t;
    kernels::adamw({weights.data(), gradient.data(), moment1.data(), moment2.data(), n, 0}, now, {&all, 1});
    for (ServerTable& server : servers) {
      const auto range = server.piece(0);
      auto part = server.take_buffer(0);
      std::memcpy(part.get(), gradient.data() + range.begin, static_cast<size_t>(range.size()) * sizeof(float));
      server.push(0, 0, std::move(part), kNoRate);
      const auto snapshot = server.pull(0, 0);
      EXPECT_EQ(std::memcmp(snapshot->weights.get(), weights.data() + range.begin,
                            static_cast<size_t>(range.size()) * sizeof(float)),
                0);
    }
  }
}

TEST(ServerTable, RefusesAStalenessThatIsNone) {
  EXPECT_ERROR(table_of(1, {.staleness = -2}), Code::kBadConfig, "staleness is -2", "kAsynchronous");
}

// Simulates rounds of M bytes among hosts with links of B bytes a microsecond each way, in which every worker pushes to
// and pulls from every server at once. Returns the time of a round as a multiple of M/B.
double simulated_round(int num_ranks, int num_dedicated, const std::vector<double>& shares) {
  constexpr double kBytes = 1e6;
  sim::Engine engine;
  std::vector<int> sends, receives;
  for (int host = 0; host < num_ranks; ++host) {
    sends.push_back(engine.add_resource("link from host " + std::to_string(host), 1));
    receives.push_back(engine.add_resource("link to host " + std::to_string(host), 1));
  }
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto move = [&](int from, int to, double share) {
    if (from == to || share == 0) return;
    // Each flow has its part of the links, so that all end together where no link has more to carry than others.
    const double bytes = kBytes * share / total;
    engine.add_task({.work_us = kBytes,
                     .uses = {{sends[static_cast<size_t>(from)], bytes / kBytes},
                              {receives[static_cast<size_t>(to)], bytes / kBytes}}});
  };
  for (int worker = 0; worker < num_ranks - num_dedicated; ++worker) {
    for (int server = 0; server < num_ranks; ++server) {
      move(worker, server, shares[static_cast<size_t>(server)]);
      move(server, worker, shares[static_cast<size_t>(server)]);
    }
  }
  return engine.run().end_us / kBytes;
}

// BytePS' equation, up to as many dedicated servers as workers.
TEST(BalancedShares, MakeLinksEquallyBusy_SoThatARoundTakesWhatTheEquationSays) {
  for (const int workers : {2, 3, 4, 8, 16, 64}) {
    for (const int dedicated : {0, 1, workers / 2, workers - 1, workers}) {
      const double n = workers, k = dedicated;
      const std::vector<double> shares = balanced_shares(workers + dedicated, dedicated);
      const double round = simulated_round(workers + dedicated, dedicated, shares);
      const double equation = 2 * n * (n - 1) / (n * n + k * n - 2 * k);
      EXPECT_NEAR(round, std::max(1.0, equation), 1e-6) << workers << " workers, " << dedicated << " dedicated servers";
      if (dedicated == 0) {
        EXPECT_NEAR(round, 2 * (n - 1) / n, 1e-6);
      }
      const std::vector<double> equal(shares.size(), 1);
      if (dedicated > 0 && workers > 2) {
        EXPECT_GT(simulated_round(workers + dedicated, dedicated, equal), round);
      }
    }
  }
  const ServerLayout layout = mixed_servers(5, 2);
  EXPECT_EQ(layout.workers, (std::vector<Rank>{0, 1, 2}));
  EXPECT_EQ(layout.servers, (std::vector<Rank>{0, 1, 2, 3, 4}));
  EXPECT_ERROR(mixed_servers(2, 2), Code::kBadConfig, "2 ranks can't have 2 that only serve");
}

}  // namespace
}  // namespace herd
