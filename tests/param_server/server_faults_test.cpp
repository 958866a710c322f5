// Servers and workers as processes, on one host and on several, of which one is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <latch>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/connection.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/inproc_world.h"
#include "herd/memory/shared_memory.h"
#include "herd/param_server/parameter_server.h"
#include "herd/param_server/server_client.h"
#include "herd/param_server/server_message_internal.h"
#include "herd/param_server/server_state_internal.h"
#include "tests/comm/between_hosts.h"
#include "tests/support/expect_within.h"
#include "tests/support/sample.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kElements = 1 << 17;  // more than a ring holds

struct Times {
  std::atomic<int64_t> struck_ns{0}, known_ns{0};
};
int64_t now_ns() { return steady_clock::now().time_since_epoch().count(); }

// Ranks 0 and 1 work, rank 2 serves. The victim ends itself in step 5; the others go on to step 30.
class ServerFaults : public testing::TestWithParam<bool> {
 protected:
  WorldOptions hosts() const { return GetParam() ? testing_support::on_hosts({0, 1, 2}) : WorldOptions{}; }

  // Returns the error of worker 0, and how long it took from the end of the victim.
  std::string strike(Rank victim, ServerOptions options, std::chrono::nanoseconds& took) {
    SharedMemory shared = SharedMemory::create("herd:server_faults", kPageBytes);
    shared.commit(0, kPageBytes);
    auto& times = *new (shared.data()) Times;
    ForkWorld processes(
        3,
        [&](Communicator& world) {
          const ServerLayout layout = dedicated_servers(3, 1);
          const KeyTable keys{{.elements = kElements}};
          const auto die = [&] {
            times.struck_ns = now_ns();
            std::raise(SIGKILL);
          };
          if (world.rank() == 2) {
            ParameterServer server(world, layout, keys, options);
            while (victim == 2 && server.version(0) < 5) std::this_thread::sleep_for(1ms);
            if (victim == 2) die();
            return server.wait();
          }
          ServerClient client(world, layout, keys);
          std::vector<float> weights(kElements);
          try {
            for (int step = 0; step < 30; ++step) {
              if (victim == world.rank() && step == 5) die();
              client.push(0, weights);
              client.pull(0, weights);
            }
          } catch (...) {
            times.known_ns = now_ns();
            throw;
          }
        },
        hosts());
    const std::string error = processes.wait(0).error;
    took = std::chrono::nanoseconds(times.known_ns - times.struck_ns);
    return error;
  }
};

TEST_P(ServerFaults, NamesAKilledWorkerWithinASecond) {
  expect_within(1s, [&] {
    std::chrono::nanoseconds took{};
    EXPECT_THAT(strike(1, {}, took),
                AllOf(HasSubstr("kPeerLost"), HasSubstr("server 0 (rank 2)"), HasSubstr("worker 1 (rank 1) is lost")));
    return took;
  });
}

TEST_P(ServerFaults, NamesAKilledServerWithinASecond) {
  expect_within(1s, [&] {
    std::chrono::nanoseconds took{};
    EXPECT_THAT(strike(2, {}, took),
                AllOf(HasSubstr("kPeerLost"), HasSubstr("server 0 (rank 2), in a "), HasSubstr("of key 0")));
    return took;
  });
}

TEST_P(ServerFaults, GoesOnWithoutAKilledWorker_WhereItIsAsynchronousOrMaySurvive) {
  std::chrono::nanoseconds took{};
  EXPECT_EQ(strike(1, {.staleness = kAsynchronous}, took), "");
  EXPECT_EQ(strike(1, {.survive_lost_workers = true}, took), "");
}

// A worker pushes two keys and pulls them, three times; before one of these calls it ends itself, or the server's
// process. What goes on from there is the same wherever that is.
class ServerOps : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kKeys = 2, kRounds = 3, kCalls = kRounds * 2 * kKeys;

  // Returns the error of worker 0, and how long it took from the blow; worker 1 strikes before this call of its own.
  std::string strike(Rank victim, int before_call, const ServerOptions& options, std::chrono::nanoseconds& took) {
    SharedMemory shared = SharedMemory::create("herd:server_ops", kPageBytes);
    shared.commit(0, kPageBytes);
    auto& times = *new (shared.data()) Times;
    auto& server_pid = *new (reinterpret_cast<char*>(shared.data()) + sizeof(Times)) std::atomic<pid_t>(0);
    ForkWorld processes(
        3,
        [&](Communicator& world) {
          const ServerLayout layout = dedicated_servers(3, 1);
          const KeyTable keys{{.elements = 1 << 15}, {.elements = 100}};
          if (world.rank() == 2) {
            server_pid = getpid();
            return ParameterServer(world, layout, keys, options).wait();
          }
          ServerClient client(world, layout, keys);
          std::vector<float> weights(1 << 15);
          try {
            for (int call = 0; call < kCalls; ++call) {
              if (world.rank() == 1 && call == before_call) {
                times.struck_ns = now_ns();
                kill(victim == 1 ? getpid() : server_pid.load(), SIGKILL);
              }
              const std::span<float> own =
                  std::span(weights).first(static_cast<size_t>(keys.at(call % kKeys).elements));
              if (call / kKeys % 2 == 0)
                client.push(call % kKeys, own);
              else
                client.pull(call % kKeys, own);
            }
            // Each worker calls on until it knows of the other's end.
            while (victim == 2 || options.staleness == 0) {
              client.push(0, weights);
              client.pull(0, weights);
            }
          } catch (...) {
            if (world.rank() == 0) times.known_ns = now_ns();
            throw;
          }
        },
        hosts());
    const std::string error = processes.wait(0).error;
    took = times.known_ns == 0 ? std::chrono::hours(1) : std::chrono::nanoseconds(times.known_ns - times.struck_ns);
    return error;
  }

 private:
  WorldOptions hosts() const { return GetParam() ? testing_support::on_hosts({0, 1, 2}) : WorldOptions{}; }
};

TEST_P(ServerOps, AtEachOfThemADeathIsNamedWithinASecond_OrTheOthersGoOn) {
  int tried = 0;
  for (int which = 0; which < 4 * kCalls; which += one_in(11, 23)) {
    const int call = which % kCalls;
    const bool is_async = which / kCalls % 2 == 1;
    const Rank victim = which / kCalls < 2 ? 1 : 2;
    SCOPED_TRACE((victim == 1 ? "worker 1" : "the server") + std::string(" dies before call ") + std::to_string(call) +
                 (is_async ? " of asynchronous servers" : " of synchronous servers"));
    const ServerOptions options{.staleness = is_async ? kAsynchronous : 0};
    ++tried;
    if (victim == 1 && is_async) {
      std::chrono::nanoseconds took{};
      EXPECT_EQ(strike(victim, call, options, took), "");
      continue;
    }
    expect_within(1s, [&] {
      std::chrono::nanoseconds took{};
      const std::string error = strike(victim, call, options, took);
      EXPECT_THAT(error, AllOf(HasSubstr("kPeerLost"), HasSubstr("server 0 (rank 2)")));
      if (victim == 1) {
        EXPECT_THAT(error, HasSubstr("worker 1 (rank 1) is lost"));
      }
      return took;
    });
  }
  EXPECT_GE(tried, 3);
}

INSTANTIATE_TEST_SUITE_P(Hosts, ServerOps, testing::Values(false, true),
                         [](const auto& hosts) { return hosts.param ? "Three" : "One"; });

// Each in a process of its own; eight of them by default.
TEST(ServerProcesses, ServeSixtyFourWorkers) {
  const int workers = std::getenv("HERD_FULL_TESTS") != nullptr ? 64 : 8;
  run_forked(workers + 1, [workers](Communicator& world) {
    const ServerLayout layout = dedicated_servers(workers + 1, 1);
    const KeyTable keys{{.elements = 3}};
    if (world.rank() == workers)
      return ParameterServer(world, layout, keys, {.optimizer = kernels::SgdHyper{.rate = 1}}).wait();
    ServerClient client(world, layout, keys);
    std::vector<float> weights(3);
    for (int round = 1; round <= 5; ++round) {
      client.push(0, std::vector<float>{static_cast<float>(world.rank() % 2 * 2), 1, 2});
      const auto expected = static_cast<float>(-round);
      if (client.pull(0, weights) != round || weights != std::vector<float>{expected, expected, 2 * expected})
        throw Error(Code::kBug, "round " + std::to_string(round) + " gave other weights");
    }
  });
}

// Worker 1 asks for more weights than a ring holds, says goodbye, and reads nothing: it is stopped.
TEST(ServerFarewell, KeepsNobodyWaiting_WhereTheWorkerIsStopped) {
  using namespace param_server;
  std::latch said_goodbye(2);
  std::atomic<int> ended{0};  // ranks other than the stopped one
  run_inproc(3, [&](Communicator& world) {
    const ServerLayout layout = dedicated_servers(3, 1);
    const KeyTable keys{{.elements = 1 << 20}};
    if (world.rank() == 2) {
      ParameterServer(world, layout, keys).wait();
    } else if (world.rank() == 1) {
      comm::Connection server(world, 2, connection_name(layout, 0, 1));
      Request request{.fingerprint = keys.fingerprint()};
      for (const RequestKind kind : {RequestKind::kHello, RequestKind::kPull, RequestKind::kLeave}) {
        request.kind = kind;
        server.send(bytes_of(request), kRequestTag);
        ++request.number;
      }
      said_goodbye.count_down();
      for (int i = 0; i < 2000 && ended < 2; ++i) std::this_thread::sleep_for(10ms);
      EXPECT_EQ(ended, 2) << "the server, too, ends without it";
      return;
    } else {
      ServerClient client(world, layout, keys);
      said_goodbye.arrive_and_wait();
      client.set_deadline(3s);
      std::vector<float> weights(1 << 20);
      EXPECT_NO_THROW(client.push(0, weights));
      EXPECT_NO_THROW(client.pull(0, weights));
    }
    ++ended;
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, ServerFaults, testing::Values(false, true),
                         [](const auto& hosts) { return hosts.param ? "Three" : "One"; });

}  // namespace
}  // namespace herd
