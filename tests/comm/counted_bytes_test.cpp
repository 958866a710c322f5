#include "tests/comm/counted_bytes.h"

#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"
#include "tests/support/sample.h"

namespace herd::testing_support {
namespace {

using namespace std::chrono_literals;

class CountedBytes : public testing::TestWithParam<int> {};

TEST_P(CountedBytes, OfEveryAllReduceAreThoseOfItsEquation) {
  const int n = GetParam();
  run_inproc(n, [](Communicator& world) { check_counted_bytes(world); });
  for (const Placement& placement : placements_of(n)) {
    if (placement.hosts.empty()) continue;
    run_inproc(
        n, [&](Communicator& world) { check_counted_bytes(world, placement); }, placement.hosts);
  }
}

// Eight and nine threads on a few cores take the sanitizers longer than all others together.
std::vector<int> ranks() {
  std::vector<int> all = {2, 3, 4, 5, 6, 8, 9};
  if (one_in(1, 2) > 1) all.resize(5);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ranks, CountedBytes, testing::ValuesIn(ranks()));

// Bytes that `run` moves.
template <typename Run>
uint64_t moved(const Communicator& comm, Run&& run) {
  const uint64_t before = comm.bytes_moved();
  run();
  return comm.bytes_moved() - before;
}

TEST(CountedBytes, CountWhereTheyAreSent_OrForWhoeverTouchesItsPeersMemory) {
  run_inproc(2, [](Communicator& comm) {
    SymmetricMemory memory = comm.allocate_symmetric(4000);
    const auto x = memory.span<float>();
    const bool root = comm.rank() == 0;
    const auto broadcast = [&](const char* algorithm) {
      return moved(comm, [&] { comm.broadcast(x, 0, {.algorithm = algorithm}); });
    };
    require(broadcast("binomial") == (root ? 4000u : 0u), "a message counts for its sender");
    require(broadcast("direct_pull") == (root ? 0u : 4000u), "memory that is pulled counts for its reader");
    const uint64_t pushed = broadcast("direct_push");
    require(pushed == 2000u, "each rank fetches or writes one half: " + std::to_string(pushed));
    const uint64_t copied = moved(comm, [&] {
      if (root) comm.copy(std::vector<float>(10), memory, 1);
    });
    require(copied == (root ? 40u : 0u), "memory that is written counts for its writer");
    const uint64_t to_itself = moved(comm, [&] {
      std::vector<float> y(1000), z(1000);
      Work work = comm.receive_async(z, comm.rank());
      comm.send(y, comm.rank());
      work.wait();
    });
    require(to_itself == 0, "what a rank sends itself is no traffic");
    comm.barrier();
  });
}

// What a schedule says is no count: of a message that nobody takes only what found room has moved.
TEST(CountedBytes, OfAFailedOperationAreThosePiecesThatHaveMoved) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, {0, 1}}) {
    std::latch over(2);  // rank 1 stays meanwhile
    const auto body = [&over](Communicator& comm) {
      constexpr int64_t kBytes = 32 << 20;
      uint64_t bytes = 1;
      if (comm.rank() == 0) {
        std::vector<std::byte> x(kBytes);
        bytes = moved(comm, [&] {
          try {
            comm.broadcast(Buffer{x.data(), kBytes, DType::kU8}, 0, {.deadline = 200ms, .algorithm = "binomial"});
          } catch (const Error&) {
          }
        });
      }
      over.arrive_and_wait();
      require(bytes > 0 && bytes <= 8 << 20, "pieces: " + std::to_string(bytes));
    };
    run_inproc(2, body, hosts);
  }
}

}  // namespace
}  // namespace herd::testing_support
