// Operations in flight: order within a group, independence between groups, sends and receives beside collectives.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <ctime>
#include <memory>
#include <numeric>
#include <thread>
#include <tuple>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"
#include "tests/comm/collective_check.h"
#include "tests/comm/require.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using testing_support::require;

TEST(Asynchronous, ManyOperationsInFlightCompleteInIssueOrder) {
  run_inproc(3, [](Communicator& comm) {
    std::vector<std::vector<int32_t>> data(20, std::vector<int32_t>(3000, comm.rank() + 1));
    std::vector<Work> work;
    for (auto& one : data) work.push_back(comm.all_reduce_async(one));
    work.back().wait();
    for (Work& one : work) require(one.done(), "an earlier operation is not done after a later one");
    for (auto& one : data) require(one == std::vector<int32_t>(3000, 6), "sum");
  });
}

TEST(Asynchronous, GroupsOfOneRankDoNotWaitForEachOther_WhenIssuedInDifferentOrder) {
  run_inproc(2, [](Communicator& world) {
    Communicator a = world.split(0, world.rank(), "a"), b = world.split(0, world.rank(), "b");
    for (int round = 0; round < 50; ++round) {
      std::vector<int64_t> x(1000, 1), y(100000, 2);
      Communicator& first = world.rank() == 0 ? a : b;
      Communicator& second = world.rank() == 0 ? b : a;
      Work one = first.all_reduce_async(&first == &a ? x : y);
      second.all_reduce(&second == &a ? x : y);
      one.wait();
      require(x == std::vector<int64_t>(1000, 2) && y == std::vector<int64_t>(100000, 4), "sums");
    }
  });
}

TEST(Asynchronous, SynchronousCallsOverTakeTheProgressThread) {
  run_inproc(2, [](Communicator& world) {
    Communicator side = world.split(0, world.rank(), "side");
    std::vector<float> large(300000, 1), small(8, 1);
    for (int round = 0; round < 20; ++round) {
      std::fill(large.begin(), large.end(), 1.f);
      std::fill(small.begin(), small.end(), 1.f);
      Work work = world.all_reduce_async(large);
      side.all_reduce(small);
      work.wait();
      require(large[299999] == 2 && small[7] == 2, "sums");
    }
  });
}

TEST(Asynchronous, AGroupMayBeUsedByItsOwnThread) {
  run_inproc(2, [](Communicator& world) {
    Communicator other = world.split(0, world.rank(), "other");
    std::thread thread([&] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int32_t> x(64, round);
        other.all_reduce(x);
        require(x[63] == 2 * round, "sum of the thread's group");
      }
    });
    for (int round = 0; round < 200; ++round) {
      std::vector<int32_t> x(64, round);
      world.all_reduce(x);
      require(x[63] == 2 * round, "sum");
    }
    thread.join();
  });
}

TEST(Asynchronous, AWorkThatNobodyWaitsForStillCompletes) {
  run_inproc(2, [](Communicator& comm) {
    auto data = std::make_shared<std::vector<float>>(5000, 1.f);
    Buffer buffer = to_buffer(*data, BufferTag{});
    buffer.keep_alive = data;
    std::ignore = comm.all_reduce_async(buffer);
    std::weak_ptr<std::vector<float>> watched = data;
    data.reset();
    buffer.keep_alive.reset();
    for (int i = 0; i < 5000 && !watched.expired(); ++i) std::this_thread::sleep_for(1ms);
    require(watched.expired(), "the buffer is let go when the operation is done");
    comm.barrier();
  });
}

TEST(Asynchronous, AnOperationHasLetGoOfItsMemoryWhenItIsDone) {
  run_inproc(2, [](Communicator& comm) {
    for (int i = 0; i < 2000; ++i) {
      auto memory = std::make_shared<std::vector<float>>(64);
      Buffer buffer{.ptr = memory->data(), .count = 64};
      const std::weak_ptr<std::vector<float>> held = memory;
      buffer.keep_alive = std::move(memory);
      Work work = comm.rank() == 0 ? comm.send_async(buffer, 1) : comm.receive_async(buffer, 0);
      buffer.keep_alive = nullptr;
      while (!work.done()) std::this_thread::yield();
      require(held.expired(), "the memory outlived operation " + std::to_string(i));
    }
  });
}

TEST(PointToPoint, MessagesOfOneTagArriveInOrder_AndTagsDoNotMix) {
  run_inproc(2, [](Communicator& comm) {
    std::vector<int32_t> a(50000), b(3), c(3);
    if (comm.rank() == 0) {
      std::iota(a.begin(), a.end(), 0);
      b = {1, 2, 3}, c = {4, 5, 6};
      Work first = comm.send_async(a, 1, 7);
      comm.send(b, 1, 8);
      comm.send(c, 1, 8);
      first.wait();
    } else {
      comm.receive(b, 0, 8);
      comm.receive(c, 0, 8);
      comm.receive(a, 0, 7);
      require(b == std::vector<int32_t>({1, 2, 3}) && c == std::vector<int32_t>({4, 5, 6}), "tag 8");
      require(a[0] == 0 && a[49999] == 49999, "tag 7");
    }
  });
}

TEST(PointToPoint, ManyOutstandingMessagesOfSeveralTagsCostTheSameEach) {
  const std::clock_t begin = std::clock();  // of this process, whatever else the machine does
  run_inproc(2, [](Communicator& comm) {
    constexpr int kMessages = 20000;
    std::vector<int> values(kMessages);
    if (comm.rank() == 0) std::iota(values.begin(), values.end(), 0);
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      const std::span<int> value(&values[static_cast<size_t>(i)], 1);
      works.push_back(comm.rank() == 0 ? comm.send_async(value, 1, i % 7) : comm.receive_async(value, 0, i % 7));
    }
    for (Work& work : works) work.wait();
    for (int i = 0; i < kMessages; ++i) require(values[static_cast<size_t>(i)] == i, "message " + std::to_string(i));
  });
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 4);  // looking at all of them for each took 12 s
}

TEST(PointToPoint, DoesNotQueueBehindACollective) {
  run_inproc(2, [](Communicator& comm) {
    std::vector<float> x(100, 1);
    std::vector<int32_t> token = {0};
    if (comm.rank() == 0) {
      Work waits = comm.all_reduce_async(x);  // rank 1 joins only after the message
      token = {42};
      comm.send(token, 1, 3);
      waits.wait();
    } else {
      comm.receive(token, 0, 3);
      require(token[0] == 42, "token");
      comm.all_reduce(x);
    }
    require(x[99] == 2, "sum");
  });
}

TEST(Record, CountsBytesSentByAllGroups_AndTheAlgorithmsOfEach) {
  run_inproc(2, [](Communicator& comm) {
    Communicator other = comm.split(0, 0, "other");
    std::vector<float> x(1000);
    const uint64_t before = comm.bytes_moved();
    for (int i = 0; i < 3; ++i) comm.all_reduce(x, {.algorithm = "ring"});
    require(comm.bytes_moved() - before == 3 * 4000, "a ring of two ranks sends half, twice");
    other.all_reduce(x, {.algorithm = "ring"});
    require(comm.bytes_moved() - before == 4 * 4000, "other groups count");
    comm.rank() == 0 ? comm.send(x, 1) : comm.receive(x, 0);
    require(comm.bytes_moved() - before == (comm.rank() == 0 ? 5u : 4u) * 4000, "a message counts where it is sent");
    const auto used = other.algorithms_used();
    require(used.size() == 1 && used[0].collective == "all_reduce" && used[0].bytes == 4000 &&
                used[0].algorithm == "ring" && used[0].operations == 1,
            "what the group ran");
    require(comm.algorithms_used().size() == 2, "split's all_gather and the ring");
    require(comm.topology().find("host") != std::string::npos, "topology");
  });
}

TEST(Record, AWorkSaysWhenItFinished) {
  run_inproc(2, [](Communicator& comm) {
    std::vector<float> x(1000);
    const auto before = std::chrono::steady_clock::now();
    Work work = comm.all_reduce_async(x);
    while (!work.done()) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);
    const auto after = std::chrono::steady_clock::now();
    work.wait();
    require(before <= work.finished_at() && work.finished_at() + 20ms <= after, "when it finished");
  });
}

TEST(Raw, ACopyIsSeenAfterItsSignal) { run_inproc(3, testing_support::pass_on_raw); }

TEST(Raw, CopyRefusesWhatDoesNotFit_AndMemoryOfAnotherGroup) {
  run_inproc(2, [](Communicator& comm) {
    Communicator other = comm.split(0, 0, "other");
    SymmetricMemory memory = comm.allocate_symmetric(4000);
    const std::vector<float> x(500);
    for (int64_t offset : {int64_t{-1}, int64_t{2001}}) {
      EXPECT_THROW(comm.copy(x, memory, 0, offset), Error);
    }
    EXPECT_THROW(other.copy(x, memory, 0), Error);
    EXPECT_THROW(comm.copy(x, memory, 2), Error);
    comm.barrier();
  });
}

TEST(PointToPoint, ARankMaySendToItself) {
  run_inproc(1, [](Communicator& comm) {
    std::vector<double> out = {1, 2, 3}, in(3);
    Work sent = comm.send_async(out, 0, 1);
    comm.receive(in, 0, 1);
    sent.wait();
    require(in == out, "message");
  });
}

TEST(Split, OrdersByKeyThenRank_AndLeavesOutNegativeColors) {
  run_inproc(5, [](Communicator& world) {
    Communicator part = world.split(world.rank() == 4 ? -1 : world.rank() % 2, -world.rank(), "part");
    if (world.rank() == 4) {
      require(part.size() == 0 && part.rank() == -1, "no member");
      return;
    }
    require(part.size() == 2 && part.rank() == (world.rank() < 2 ? 1 : 0), "order by key");
    std::vector<int32_t> x = {world.rank()};
    part.all_reduce(x);
    require(x[0] == (world.rank() % 2 == 0 ? 2 : 4), "sum in the group");
    Communicator again = part.split(0, 0, "again");
    SymmetricMemory memory = again.allocate_symmetric(4000);
    std::fill(memory.span<float>().begin(), memory.span<float>().end(), 1.f);
    again.all_reduce(memory.span<float>());
    require(memory.span<float>()[999] == 2.f, "symmetric memory of a group of a group");
  });
}

TEST(Symmetric, MemoryOfTheWorldServesAGroup_AtDifferentOffsets) {
  run_inproc(4, [](Communicator& world) {
    SymmetricMemory memory = world.allocate_symmetric(1 << 16);
    Communicator pair = world.split(world.rank() / 2, 0, "pair");
    auto mine = memory.span<float>().subspan(static_cast<size_t>(100 * world.rank()), 1000);
    std::fill(mine.begin(), mine.end(), static_cast<float>(world.rank()));
    pair.all_reduce(mine, {.algorithm = "direct_push"});
    require(mine[999] == (world.rank() < 2 ? 1.f : 5.f), "sum");
  });
}

TEST(Asynchronous, ThreadsOfARankIssueIntoOneGroup_InOneOrder) {
  constexpr int kThreads = 4, kRounds = 200;
  run_inproc(2, [&](Communicator& comm) {
    std::atomic<bool> right = true;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int round = 0; round < kRounds; ++round) {
          std::vector<int64_t> x(64, comm.rank() + 1);
          if (thread % 2 == 0)
            comm.all_reduce(x);
          else
            comm.all_reduce_async(x).wait();
          if (x != std::vector<int64_t>(64, 3)) right = false;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    require(right, "a sum of two threads' calls");
    require(comm.algorithms_used().front().operations == kThreads * kRounds, "every call is counted");
  });
}

TEST(Asynchronous, TellsWhenAnOperationIsDone_OrHasFailed) {
  std::barrier both(2);
  run_inproc(2, [&](Communicator& comm) {
    std::vector<int64_t> x(1000, 1);
    std::atomic<int> calls = 0;
    Work work = comm.all_reduce_async(x);
    work.on_done([&] { ++calls; });
    work.wait();
    const auto until = std::chrono::steady_clock::now() + 5s;
    while (calls < 1 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    work.on_done([&] { ++calls; });
    Work().on_done([&] { ++calls; });
    require(calls == 3, "told once in flight, and at once where it is done");
    both.arrive_and_wait();
    Work never = comm.receive_async(x, 1 - comm.rank());
    never.on_done([&] { ++calls; });
    both.arrive_and_wait();
    comm.abort("enough");
    try {
      never.wait();
    } catch (const Error&) {
    }
    while (calls < 4 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    require(calls == 4, "told of a failure");
  });
}

}  // namespace
}  // namespace herd
