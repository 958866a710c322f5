// Servers and workers as processes, on one host and on several, of which one is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <memory>
#include <new>
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
