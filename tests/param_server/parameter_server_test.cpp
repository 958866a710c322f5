// Servers and workers as threads of one process, on one host and on two.
#include "herd/param_server/parameter_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "herd/param_server/server_client.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample.h"

namespace herd {
namespace {

using namespace std::chrono_literals;

const std::vector<Key> kKeys = {
    {.elements = 3}, {.elements = 5000, .row_elements = 10}, {.elements = 1}, {.elements = 1024}};

// Runs a server where the layout has one, and `body` on every worker, which is given its number.
void with_servers(Communicator& world, const ServerLayout& layout, const ServerOptions& options,
                  const std::function<void(ServerClient&, int worker)>& body, const std::vector<Key>& keys = kKeys) {
  const KeyTable table(keys);
  std::unique_ptr<ParameterServer> server;
  const auto has = [&](const std::vector<Rank>& ranks) {
    return std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end();
  };
  if (has(layout.servers)) server = std::make_unique<ParameterServer>(world, layout, table, options);
  if (has(layout.workers)) {
    ServerClient client(world, layout, table, server.get());
    body(client, static_cast<int>(std::find(layout.workers.begin(), layout.workers.end(), world.rank()) -
                                  layout.workers.begin()));
  }
  if (server) server->wait();
}

ServerOptions sgd(int64_t staleness = 0) { return {.staleness = staleness, .optimizer = kernels::SgdHyper{.rate = 1}}; }

// Weights are exact: sums of small integers, and averages over 1, 2 and 4 workers.
void train_exactly(ServerClient& client, int worker, int num_workers) {
  for (int round = 1; round <= 3; ++round) {
    for (int64_t index = 0; index < client.keys().size(); ++index) {
      std::vector<float> gradient(static_cast<size_t>(client.keys().at(index).elements));
      for (size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>(i % 7 + static_cast<size_t>(worker));
      client.push(index, gradient);
    }
    for (int64_t index = 0; index < client.keys().size(); ++index) {
      std::vector<float> weights(static_cast<size_t>(client.keys().at(index).elements));
      ASSERT_EQ(client.pull(index, weights), round);
      for (size_t i = 0; i < weights.size(); ++i) {
        const float average = static_cast<float>(i % 7) + static_cast<float>(num_workers - 1) / 2;
        ASSERT_EQ(weights[i], -average * static_cast<float>(round)) << "key " << index << " element " << i;
      }
    }
  }
}

TEST(ParameterServer, AveragesGradientsOfAllWorkers_OnServersOfTheirOwn) {
  for (int workers : {1, 2, 4}) {
    for (int servers : {1, 2, 3}) {
      run_inproc(workers + servers, [&](Communicator& world) {
        with_servers(world, dedicated_servers(world.size(), servers), sgd(),
                     [&](ServerClient& client, int worker) { train_exactly(client, worker, workers); });
      });
    }
  }
}

TEST(ParameterServer, AveragesGradientsOfAllWorkers_OnServersInTheirProcesses) {
  for (int workers : {1, 2, 4}) {
    for (int servers = 1; servers <= workers; ++servers) {
      run_inproc(workers, [&](Communicator& world) {
        with_servers(world, colocated_servers(world.size(), servers), sgd(),
                     [&](ServerClient& client, int worker) { train_exactly(client, worker, workers); });
      });
    }
  }
}

TEST(ParameterServer, AveragesGradientsOfAllWorkers_OnSeveralHosts) {
  run_inproc(4,
             [&](Communicator& world) {
               with_servers(world, colocated_servers(4, 2), sgd(),
                            [&](ServerClient& client, int worker) { train_exactly(client, worker, 4); });
             },
             {0, 0, 1, 1});
}

// Workers push the same keys in opposite orders, each with a pull that it waits for only later: a pull that has to wait
// keeps no later push of its worker from the server.
TEST(ParameterServer, PushesAndPullsOfSeveralKeysGoOnTogether) {
  for (const bool two_hosts : {false, true}) {
    run_inproc(
        2,
        [&](Communicator& world) {
          with_servers(world, colocated_servers(2, 2), sgd(), [&](ServerClient& client, int worker) {
            const int64_t num_keys = client.keys().size();
            std::vector<std::vector<float>> gradients, weights;
            for (int64_t key = 0; key < num_keys; ++key)
              gradients.emplace_back(client.keys().at(key).elements, static_cast<float>(1 + 2 * worker));
            weights = gradients;
            client.set_deadline(10s);
            for (int round = 1; round <= 5; ++round) {
              std::vector<ServerCall> pushes, pulls;
              for (int64_t i = 0; i < num_keys; ++i) {
                const int64_t key = worker == 0 ? i : num_keys - 1 - i;
                const auto k = static_cast<size_t>(key);
                pushes.push_back(client.start_push(key, gradients[k]));
                pulls.push_back(client.start_pull(key, weights[k]));
              }
              for (ServerCall& push : pushes) push.wait_sent();
              for (ServerCall& pull : pulls) ASSERT_EQ(pull.wait().version, round);
              for (ServerCall& push : pushes) push.wait();
              for (const auto& of_key : weights)
                for (const float weight : of_key) ASSERT_EQ(weight, -2.0f * static_cast<float>(round));
            }
          });
        },
        two_hosts ? std::vector<int>{0, 1} : std::vector<int>{});
  }
}

TEST(ParameterServer, AddsSparseRows_AndTakesOthersForZero) {
  run_inproc(3, [&](Communicator& world) {
    with_servers(world, dedicated_servers(3, 2), sgd(), [&](ServerClient& client, int worker) {
      // Worker 0 is the only one: row 0, a row of each server's share, and one row twice.
      ASSERT_EQ(worker, 0);
      const std::vector<int64_t> rows = {499, 0, 3, 3};
      std::vector<float> values(40);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 10 + 1);
      client.push_rows(1, rows, values);
      std::vector<float> weights(5000);
      EXPECT_EQ(client.pull(1, weights), 1);
      for (int row = 0; row < 500; ++row) {
        const float expected = row == 499 ? 1 : row == 0 ? 2 : row == 3 ? 7 : 0;
        EXPECT_EQ(weights[static_cast<size_t>(row) * 10 + 9], -expected) << row;
      }
      EXPECT_ERROR(client.push_rows(1, std::vector<int64_t>{500}, std::vector<float>(10)), Code::kBadConfig,
                   "row 500 of key 1 is unknown", "rows 0 to 499");
    });
  });
}

// The slow worker sleeps, so that pace does not depend on the cores.
TEST(ParameterServer, KeepsTheStalenessWithinTheBound_WithAWorkerTenTimesSlower) {
  for (int staleness : {0, 2}) {
    std::atomic<int64_t> most{0};
    run_inproc(3, [&](Communicator& world) {
      with_servers(world, colocated_servers(3, 1), sgd(staleness),
                   [&](ServerClient& client, int worker) {
                     std::vector<float> weights(3);
                     for (int64_t step = 0; step < 60; ++step) {
                       std::this_thread::sleep_for(worker == 2 ? 2ms : 200us);
                       client.push(0, std::vector<float>{1, 1, 1});
                       const int64_t behind = step + 1 - client.pull(0, weights);
                       for (int64_t seen = most; behind > seen && !most.compare_exchange_weak(seen, behind);) {
                       }
                     }
                   },
                   {{.elements = 3}});
    });
    EXPECT_EQ(most, staleness);
  }
}

TEST(ParameterServer, UpdatesAtOnce_WhereItIsAsynchronous) {
  run_inproc(4, [&](Communicator& world) {
    with_servers(world, dedicated_servers(4, 1), sgd(kAsynchronous), [&](ServerClient& client, int) {
      std::vector<float> weights(3);
      for (int step = 1; step <= 100; ++step) {
        client.push(0, std::vector<float>{1, 2, 3});
        ASSERT_GE(client.pull(0, weights), step);
        ASSERT_EQ(weights[2], 3 * weights[0]) << "no update is half applied";
      }
      if (world.rank() == 0) {
        while (client.pull(0, weights) < 300) std::this_thread::sleep_for(1ms);
        EXPECT_EQ(weights[0], -300);
      }
    });
  });
}

TEST(ParameterServer, StartsFromTheInitialWeights) {
  ServerOptions options = sgd();
  options.initial = [](int64_t index, int64_t first, std::span<float> weights) {
    for (float& weight : weights) weight = static_cast<float>(index * 10000 + first++);
  };
  run_inproc(2, [&](Communicator& world) {
    with_servers(world, colocated_servers(2, 2), options, [&](ServerClient& client, int) {
      std::vector<float> weights(5000);
      EXPECT_EQ(client.pull(1, weights), 0);
      for (size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(weights[i], 10000 + static_cast<float>(i));
    });
  });
}

TEST(ParameterServer, ServesSixtyFourWorkers) {
  run_inproc(65, [&](Communicator& world) {
    with_servers(world, dedicated_servers(65, 1), sgd(), [&](ServerClient& client, int worker) {
      std::vector<float> weights(3);
      for (int round = 1; round <= 5; ++round) {
        client.push(0, std::vector<float>{static_cast<float>(worker % 2 * 2), 1, 2});
        EXPECT_EQ(client.pull(0, weights), round);
        EXPECT_THAT(weights, testing::ElementsAre(-round, -round, -2 * round));
      }
    });
  });
}

// All of them with HERD_FULL_TESTS=1.
TEST(ParameterServer, ServesOneHundredThousandKeys) {
  run_inproc(2, [&](Communicator& world) {
    with_servers(
        world, dedicated_servers(2, 1), sgd(),
        [&](ServerClient& client, int) {
          std::vector<float> weight(1);
          for (int64_t index = 0; index < client.keys().size(); index += one_in(99, 199)) {
            client.push(index, std::vector<float>{static_cast<float>(index)});
            client.pull(index, weight);
            ASSERT_EQ(weight[0], -static_cast<float>(index));
          }
        },
        std::vector<Key>(100'000, {.elements = 1}));
  });
}

TEST(ParameterServer, RefusesARankThatIsNoServer) {
  run_inproc(2, [&](Communicator& world) {
    const KeyTable keys{{.elements = 1}};
    const Rank other = 1 - world.rank();
    EXPECT_ERROR((ParameterServer(world, {.servers = {other}, .workers = {0, 1}}, keys)), Code::kBadConfig,
                 "is no server");
    EXPECT_ERROR((ParameterServer(world, {.servers = {0, 0}, .workers = {0, 1}}, keys)), Code::kBadConfig, "rank 0",
                 "named once");
    EXPECT_ERROR((ParameterServer(world, {.servers = {0}, .workers = {}}, keys)), Code::kBadConfig, "has no workers");
    EXPECT_ERROR(dedicated_servers(2, 2), Code::kBadConfig, "2 ranks can't have 2 servers");
  });
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

// Whoever ends the training tells the others at once, also those that wait in a pull, and no destructor waits.
TEST(ParameterServer, AbortEndsTheCallsOfAllWorkers) {
  std::atomic<int> ended{0};
  std::latch pushed(2);
  run_inproc(3, [&](Communicator& world) {
    const KeyTable table(kKeys);
    const ServerLayout layout = colocated_servers(world.size(), world.size());
    ParameterServer server(world, layout, table, sgd());
    ServerClient client(world, layout, table, &server);
    const std::vector<float> gradient(5000, 1);
    std::vector<float> weights(5000);
    if (world.rank() == 1) {
      pushed.wait();
      std::this_thread::sleep_for(50ms);  // until they wait in their pulls
      client.abort("rank 1: the disk is full");
      server.abort("rank 1: the disk is full");
      EXPECT_THAT(error_of([&] { client.push(1, gradient); }), testing::HasSubstr("the disk is full"));
    } else {
      client.push(1, gradient);
      pushed.count_down();
      EXPECT_THAT(error_of([&] { client.pull(1, weights); }), testing::HasSubstr("the disk is full"));
      client.abort("rank 1: the disk is full");
      server.abort("rank 1: the disk is full");
    }
    ++ended;
  });
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace herd
