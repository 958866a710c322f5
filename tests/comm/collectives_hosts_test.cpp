// Worlds of processes that take themselves for several hosts: what they send each other goes over UCX and the loopback.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/between_hosts.h"
#include "tests/comm/collective_check.h"
#include "tests/comm/counted_bytes.h"

namespace herd {
namespace {

using namespace testing_support;

using CollectivesUcx = BetweenHosts;

TEST_F(CollectivesUcx, GiveExactlyTheDefinition_AmongRanksThatShareNothing) {
  for (int n : {2, 3}) {
    run_forked(
        n,
        [&](Communicator& comm) {
          check_messages(comm, {0, 1, n - 1, n, n + 1, 1000, 5000, 140011});
        },
        testing_support::on_hosts_of_one_rank(n));
  }
}

TEST_F(CollectivesUcx, GiveExactlyTheDefinition_WhereSharedMemoryAndTheNetworkMeetInOneSchedule) {
  for (const auto& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}, std::vector<int>{0, 0, 1}}) {
    run_forked(
        static_cast<int>(host_of.size()),
        [&](Communicator& comm) {
          check_messages(comm, {1, 1000, 140011});
        },
        testing_support::on_hosts(host_of));
  }
}

TEST_F(CollectivesUcx, RunAsynchronouslyInGroupsWithinAndAcrossHosts) {
  run_forked(
      4,
      [](Communicator& world) {
        Communicator host = world.split(world.rank() / 2, 0, "host"), cross = world.split(world.rank() % 2, 0, "cross");
        for (int round = 0; round < 20; ++round) {
          std::vector<int64_t> x(100000, 1), y(20000, 2), z(10, 3);
          Work one = world.all_reduce_async(x), two = cross.all_reduce_async(y);
          host.all_reduce(z);
          two.wait();
          one.wait();
          expect_equal(static_cast<double>(x[99999]), 4, "world");
          expect_equal(static_cast<double>(y[19999]), 4, "cross");
          expect_equal(static_cast<double>(z[9]), 6, "host");
        }
        if (host.size() != 2) throw std::runtime_error("host");
        SymmetricMemory shared = host.allocate_symmetric(4096);
        host.all_reduce(shared.span<float>(), {.algorithm = "direct_pull"});
      },
      testing_support::on_hosts({0, 0, 1, 1}));
}

TEST_F(CollectivesUcx, RefuseSymmetricMemoryWhoseSizesDifferBetweenHosts) {
  run_forked(
      2,
      [](Communicator& world) {
        try {
          static_cast<void>(world.allocate_symmetric(world.rank() == 0 ? 5000 : 5001));
        } catch (const Error& error) {
          if (error.code() == Code::kBadConfig &&
              error.message().find("rank 1 asks for 5001 bytes, rank 0 for 5000") != std::string::npos)
            return;
          throw;
        }
        throw std::runtime_error("two sizes were accepted");
      },
      testing_support::on_hosts_of_one_rank(2));
}

TEST_F(CollectivesUcx, PassMessagesByTagOutOfOrder_AndLongOnesBehindShortOnes) {
  run_forked(
      2,
      [](Communicator& comm) {
        std::vector<int32_t> longer(3'000'001), small(5), empty;
        for (int round = 0; round < 5; ++round) {
          if (comm.rank() == 0) {
            std::iota(longer.begin(), longer.end(), round);
            std::fill(small.begin(), small.end(), round);
            Work one = comm.send_async(longer, 1, 7);
            comm.send(small, 1, 8);
            comm.send(empty, 1, 9);
            one.wait();
          } else {
            comm.receive(empty, 0, 9);
            comm.receive(small, 0, 8);
            comm.receive(longer, 0, 7);
            expect_equal(small[4], round, "small");
            for (size_t i = 0; i < longer.size(); i += 997) {
              expect_equal(longer[i], round + static_cast<double>(i), "longer");
            }
          }
        }
      },
      testing_support::on_hosts_of_one_rank(2));
}

TEST_F(CollectivesUcx, ManyMessagesAheadOfTheReceiverWaitForRoom) {
  run_forked(
      2,
      [](Communicator& comm) {
        std::vector<int64_t> x(1000);
        if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (int64_t i = 0; i < 3000; ++i) {
          if (comm.rank() == 0) std::fill(x.begin(), x.end(), i);
          comm.broadcast(x, 0);
          expect_equal(static_cast<double>(x[999]), static_cast<double>(i), "broadcast");
        }
      },
      testing_support::on_hosts_of_one_rank(2));
}

TEST_F(CollectivesUcx, CountTheBytesOfTheirEquations) {
  const Placement placements[] = {{{0, 1, 0, 1}}, {{0, 1, 2, 3}, {2, 2}}, {{0, 0, 1, 2}}};
  for (const Placement& placement : placements) {
    run_forked(
        4, [&](Communicator& comm) { check_counted_bytes(comm, placement); },
        testing_support::on_hosts(placement.hosts));
  }
}

TEST_F(CollectivesUcx, AreComposedOfTiers_WhereHostsHaveSeveralRanks) {
  run_forked(
      4,
      [](Communicator& comm) {
        for (int64_t count : {1, 1000, 65537}) {
          check_all_reduce(comm, count, {"hierarchical"});
          check_all_gather(comm, count, {"hierarchical"}, false);
          check_reduce_scatter(comm, count, {"hierarchical"}, false);
        }
        if (comm.topology().find("2 hosts") == std::string::npos) throw std::runtime_error(comm.topology());
      },
      testing_support::on_hosts({0, 1, 0, 1}));
}

TEST_F(CollectivesUcx, MemoryOfAnotherHostIsRefusedByName) {
  run_forked(
      2,
      [](Communicator& comm) {
        SymmetricMemory memory = comm.allocate_symmetric(4000);
        try {
          comm.copy(std::vector<int32_t>(10), memory, 1 - comm.rank());
        } catch (const Error& error) {
          if (error.message().find("is on another host than rank") != std::string::npos) return comm.barrier();
        }
        throw std::runtime_error("copied into memory of another host");
      },
      testing_support::on_hosts_of_one_rank(2));
}

}  // namespace
}  // namespace herd
