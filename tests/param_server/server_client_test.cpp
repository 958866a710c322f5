// Calls that a client refuses, and what it says of a server or of other workers that keep it from going on.
#include "herd/param_server/server_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <optional>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "herd/param_server/parameter_server.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

const KeyTable& two_keys() {
  static const KeyTable keys{{.elements = 3}, {.elements = 4}};
  return keys;
}

// Ranks 0 and 1 work, rank 2 serves.
void with_two_workers(const ServerOptions& options, const std::function<void(ServerClient&, int)>& body) {
  run_inproc(3, [&](Communicator& world) {
    const ServerLayout layout = dedicated_servers(3, 1);
    if (world.rank() == 2) return ParameterServer(world, layout, two_keys(), options).wait();
    ServerClient client(world, layout, two_keys());
    body(client, world.rank());
  });
}

TEST(ServerClient, RefusesAnUnknownKeyAndAnotherShape) {
  with_two_workers({}, [](ServerClient& client, int) {
    std::vector<float> three(3);
    EXPECT_ERROR(client.push(2, three), Code::kBadConfig, "key 2 is unknown", "keys 0 to 1");
    EXPECT_ERROR(client.pull(-1, three), Code::kBadConfig, "key -1 is unknown");
    EXPECT_ERROR(client.push(1, three), Code::kBadConfig, "gradient of key 1 has 3 elements", "takes 4");
    EXPECT_ERROR(client.pull(1, three), Code::kBadConfig, "weights of key 1 has 3 elements", "takes 4");
    EXPECT_ERROR(client.push_rows(0, std::vector<int64_t>{0}, three), Code::kBadConfig, "values of rows", "takes 1");
    EXPECT_EQ(client.pull(0, three), 0) << "the client still works";
  });
}

// Rank 0 works, and serves or leaves that to rank 2.
TEST(ServerClient, TellsHowFarWorkersAre_WithoutWaitingForThem) {
  for (const bool colocated : {false, true}) {
    std::latch ahead(2);
    const int ranks = colocated ? 2 : 3;
    run_inproc(ranks, [&](Communicator& world) {
      const ServerLayout layout = colocated ? colocated_servers(2, 1) : dedicated_servers(3, 1);
      std::optional<ParameterServer> server;
      const ServerOptions options{.staleness = kAsynchronous};
      if (world.rank() == layout.servers[0]) server.emplace(world, layout, two_keys(), options);
      if (world.rank() == 2) return server->wait();
      ServerClient client(world, layout, two_keys(), server ? &*server : nullptr);
      std::vector<float> three(3, 1);
      if (world.rank() == 1) ahead.arrive_and_wait();
      for (int64_t step = 1; step <= (world.rank() == 0 ? 3 : 1); ++step) {
        client.push(0, three);
        client.pull(0, three);
        EXPECT_EQ(client.staleness(), world.rank() == 0 ? step : 0);
        const JobProgress job = client.report({.steps = step, .sum = 2, .count = 1, .staleness = client.staleness()});
        EXPECT_EQ(job.slowest, world.rank() == 0 ? 0 : 1);
        EXPECT_EQ(job.sum, world.rank() == 0 ? 2 : 8);
        EXPECT_EQ(job.count, world.rank() == 0 ? 1 : 4);
        EXPECT_EQ(job.staleness, world.rank() == 0 ? step : 3);
        EXPECT_EQ(job.stop_after, JobProgress::kNever);
      }
      if (world.rank() == 0) ahead.arrive_and_wait();
    });
  }
}

TEST(ServerClient, NamesTheBoundToAWorkerThatNeverPulls) {
  with_two_workers({.staleness = 1}, [](ServerClient& client, int worker) {
    if (worker == 1) return;
    const std::vector<float> gradient(3, 1);
    std::vector<float> weights(3);
    client.push(0, gradient);
    client.push(0, gradient);
    EXPECT_ERROR(client.push(0, gradient), Code::kBadConfig, "server 0 (rank 2), in a push of key 0",
                 "worker 0 is beyond the bound", "pushed key 0 2 times", "version 0", "at most 1");
    client.pull(0, weights);
    client.push(0, gradient);
  });
}

TEST(ServerClient, NamesTheWorkersThatItWaitsFor) {
  std::latch timed_out(1);
  with_two_workers({}, [&](ServerClient& client, int worker) {
    if (worker == 1) return timed_out.wait();
    std::vector<float> weights(3, 1);
    client.push(0, weights);
    client.set_deadline(50ms);
    EXPECT_ERROR(client.pull(0, weights), Code::kTimeout, "server 0 (rank 2), in a pull of key 0",
                 "waits for a push of worker 1 (rank 1)");
    timed_out.count_down();
  });
}

TEST(ServerClient, NamesBothKeyTables_WhereTheModelsDiffer) {
  run_inproc(3, [&](Communicator& world) {
    const ServerLayout layout = dedicated_servers(3, 1);
    if (world.rank() == 2) return ParameterServer(world, layout, two_keys()).wait();
    std::vector<float> weights(3);
    if (world.rank() == 1) {
      EXPECT_ERROR(ServerClient(world, layout, KeyTable{{.elements = 5}}), Code::kBadConfig,
                   "worker 1 (rank 1) has another model: 1 keys of 5 elements", "server 0 has 2 keys of 7 elements");
    } else {
      ServerClient client(world, layout, two_keys());
      while (true) {
        try {
          client.pull(0, weights);
          client.push(0, weights);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::kPeerLost);
          EXPECT_THAT(error.message(), testing::HasSubstr("worker 1 (rank 1) has another model"));
          break;
        }
      }
    }
  });
}

TEST(ServerClient, NamesAWorkerThatEndsWithAnException) {
  with_two_workers({}, [](ServerClient& client, int worker) {
    std::vector<float> weights(3, 1);
    client.push(0, weights);
    if (worker == 1) {
      client.pull(0, weights);
      return;  // it leaves in good order, and the other one goes on alone
    }
    client.pull(0, weights);
    client.push(0, weights);
    EXPECT_EQ(client.pull(0, weights), 2);
  });
  std::latch lost(1);
  run_inproc(3, [&](Communicator& world) {
    const ServerLayout layout = dedicated_servers(3, 1);
    if (world.rank() == 2) return ParameterServer(world, layout, two_keys()).wait();
    std::vector<float> weights(3, 1);
    try {
      ServerClient client(world, layout, two_keys());
      if (world.rank() == 1) throw std::runtime_error("a bug of the user");
      client.push(0, weights);
      expect_within(1s, [&] {
        const auto begin = steady_clock::now();
        EXPECT_ERROR(client.pull(0, weights), Code::kPeerLost, "worker 1 (rank 1) is lost");
        return steady_clock::now() - begin;
      });
    } catch (const std::runtime_error&) {
    }
  });
}

TEST(ServerClient, IsToldOfAServerThatEndsWithAnException) {
  run_inproc(2, [](Communicator& world) {
    const ServerLayout layout = dedicated_servers(2, 1);
    std::vector<float> weights(3);
    if (world.rank() == 0) {
      ServerClient client(world, layout, two_keys());
      world.barrier();
      world.barrier();
      EXPECT_ERROR(client.pull(0, weights), Code::kAborted, "server 0 (rank 1), in a pull of key 0",
                   "the server was closed");
      return;
    }
    try {
      ParameterServer server(world, layout, two_keys());
      world.barrier();
      throw std::runtime_error("a bug of the user");
    } catch (const std::runtime_error&) {
    }
    world.barrier();
  });
}

TEST(ServerClient, NeedsTheServerOfItsOwnProcess) {
  run_inproc(2, [&](Communicator& world) {
    const ServerLayout layout = colocated_servers(2, 1);
    if (world.rank() == 0)
      EXPECT_ERROR(ServerClient(world, layout, two_keys()), Code::kBadConfig, "server 0 (rank 0)", "`local`");
    EXPECT_ERROR((ServerClient(world, {.servers = {0}, .workers = {1 - world.rank()}}, two_keys())), Code::kBadConfig,
                 "is no worker");
  });
}

}  // namespace
}  // namespace herd
