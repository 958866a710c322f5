// Operations on memory of a device, against the same on memory of the host.
#include "herd/comm/host_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/communicator.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/inproc_world.h"
#include "herd/comm/page_locked_pool.h"
#include "herd/schedule/parts.h"
#include "tests/comm/collective_check.h"
#include "tests/comm/device_check.h"
#include "tests/comm/late_device.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using std::chrono::steady_clock;
using testing::HasSubstr;

TEST(DeviceBuffers, HoldWhatTheHostsDo_AfterEveryCollective) {
  LateDevice::instance();
  for (int n = 1; n <= 5; ++n) {
    run_inproc(n, [&](Communicator& comm) {
      for (const int64_t count : {0, 1, n + 1}) check_collectives(comm, count, DType::kI32);
      check_collectives(comm, 40001, DType::kF32);
      check_collectives(comm, 301, DType::kBF16);
      check_collectives(comm, 77, DType::kBool);
    });
  }
}

// So it is on ranks beside the root of a gather: the operation leaves their output alone.
TEST(OnDevice, ReadsWhatWasWritten_ThoughNoOperationWaitedForIt) {
  LateDevice::instance();
  for (int i = 0; i < 50; ++i) Twin(0, 301, DType::kBF16, i).expect_same("written");
}

TEST(DeviceBuffers, MayBeLarge) {
  LateDevice::instance();
  run_inproc(3, [&](Communicator& comm) { check_collectives(comm, 1 << 20, DType::kF32); });
}

TEST(DeviceBuffers, TakeUnevenCountsAndFactors) {
  LateDevice::instance();
  run_inproc(3, check_uneven_counts);
}

// Lists of `size` buffers with the same elements on the host and on the device, in the opposite order of addresses.
struct TwinList {
  TwinList(Rank rank, int size, int64_t count, int seed = 0) {
    for (int i = 0; i < size; ++i) twins.push_back(std::make_unique<Twin>(rank, count + i % 2, DType::kF32, seed + i));
  }
  TwinList(Rank rank, int size, int64_t count, int times, int seed) {
    for (int i = 0; i < size; ++i)
      twins.push_back(std::make_unique<Twin>(rank, (count + i % 2) * times, DType::kF32, seed + i));
  }
  std::vector<Buffer> host() {
    std::vector<Buffer> buffers;
    for (const auto& twin : twins) buffers.push_back(twin->host());
    return buffers;
  }
  std::vector<Buffer> device() {
    std::vector<Buffer> buffers;
    for (const auto& twin : twins) buffers.push_back(twin->device());
    return buffers;
  }
  void expect_same(const std::string& what) const {
    for (const auto& twin : twins) twin->expect_same(what);
  }
  std::vector<std::unique_ptr<Twin>> twins;
};

TEST(DeviceBuffers, MakeListsAsTheHostsDo) {
  LateDevice::instance();
  for (const int n : {1, 3}) {
    run_inproc(n, [&](Communicator& comm) {
      const Rank self = comm.rank(), root = n - 1;
      TwinList xs(self, 5, 100);
      comm.all_reduce_list(xs.device());
      comm.all_reduce_list(xs.host());
      xs.expect_same("all_reduce_list");
      comm.broadcast_list(xs.device(), root);
      comm.broadcast_list(xs.host(), root);
      xs.expect_same("broadcast_list");
      comm.reduce_list(xs.device(), root);
      comm.reduce_list(xs.host(), root);
      xs.expect_same("reduce_list");
      TwinList parts(self, 5, 100, 1, 7), wholes(self, 5, 100, n, 3);
      comm.all_gather_list(parts.device(), wholes.device());
      comm.all_gather_list(parts.host(), wholes.host());
      wholes.expect_same("all_gather_list");
      comm.reduce_scatter_list(wholes.device(), parts.device());
      comm.reduce_scatter_list(wholes.host(), parts.host());
      parts.expect_same("reduce_scatter_list");
      comm.gather_list(parts.device(), wholes.device(), root);
      comm.gather_list(parts.host(), wholes.host(), root);
      wholes.expect_same("gather_list");
      comm.scatter_list(wholes.device(), parts.device(), root);
      comm.scatter_list(wholes.host(), parts.host(), root);
      parts.expect_same("scatter_list");
      TwinList received(self, 5, 100, n, 9);
      Work work = comm.all_to_all_list_async(wholes.device(), received.device());
      comm.all_to_all_list(wholes.host(), received.host());
      work.wait();
      received.expect_same("all_to_all_list");
    });
  }
}

TEST(DeviceBuffers, AreSentAndReceived_InOrderWithTheHosts) {
  LateDevice::instance();
  run_inproc(2, [&](Communicator& comm) {
    const Rank other = 1 - comm.rank();
    for (const int64_t count : {0, 1, 5000, 300000}) {
      Twin out(comm.rank(), count, DType::kF32), in(comm.rank(), count, DType::kF32, 3),
          last(comm.rank(), count, DType::kF32, 4);
      Work sent = comm.send_async(out.device(), other, 1);
      Work sent_by_host = comm.send_async(out.host(), other, 1);  // the same tag: it may not overtake
      Work from_any = comm.receive_async(in.device(), other, 1);
      Work behind = comm.receive_async(last.host(), other, 1);
      from_any.wait(), behind.wait(), sent.wait(), sent_by_host.wait();
      std::vector<std::byte> want(static_cast<size_t>(count * 4) + 1);
      for (int64_t i = 0; i < count; ++i) testing_support::store(DType::kF32, want.data(), i, value_of(other, i));
      std::memcpy(in.host().ptr, want.data(), static_cast<size_t>(count * 4));
      in.expect_same("receive");
    }
    Twin x(comm.rank(), 10, DType::kF32), y(comm.rank(), 10, DType::kF32, 5);
    if (comm.rank() == 0) comm.send(x.device(), 1, 7);
    if (comm.rank() == 1 && comm.receive_from_any(y.device(), 7) != 0) throw std::runtime_error("not from rank 0");
  });
}

TEST(DeviceBuffers, AreRefusedOnTwoDevicesAtOnce_AndBesideTheHosts) {
  LateDevice::instance();
  run_inproc(1, [&](Communicator& comm) {
    OnDevice a(4, DType::kF32, 0), b(4, DType::kF32, 1);
    std::vector<float> host(4);
    EXPECT_ERROR(comm.all_gather(a.buffer(), b.buffer()), Code::kBadConfig, "on different devices");
    EXPECT_ERROR(comm.all_gather(a.buffer(), host), Code::kBadConfig, "on different devices");
    EXPECT_ERROR(comm.all_reduce(Buffer{nullptr, 3, DType::kF32, {DeviceKind::kExtension, 0}}), Code::kBadConfig,
                 "3 elements and no memory");
  });
}

TEST(DeviceBuffers, RunOverTheGroupsOfASplitAndRandomlyInterleaved) {
  LateDevice::instance();
  run_inproc(4, [&](Communicator& comm) {
    Communicator half = comm.split(comm.rank() % 2, comm.rank());
    std::vector<std::unique_ptr<Twin>> twins;
    std::vector<Work> works;
    for (int i = 0; i < 60; ++i) {
      twins.push_back(std::make_unique<Twin>(comm.rank(), 37 * (i % 9), DType::kF32, i));
      Communicator& group = i % 3 == 0 ? half : comm;
      works.push_back(group.all_reduce_async(twins.back()->device()));
      works.push_back(group.all_reduce_async(twins.back()->host()));
    }
    for (Work& work : works) work.wait();
    for (const auto& twin : twins) twin->expect_same("all_reduce");
  });
}

TEST(DeviceBuffers, NameTheDeviceWhenItNeverComes) {
  LateDevice& device = LateDevice::instance();
  run_inproc(2, [&](Communicator& comm) {
    OnDevice x(100, DType::kF32);
    comm.barrier();
    if (comm.rank() == 0) device.hang(true);
    comm.barrier();
    std::string error;
    try {
      comm.all_reduce(x.buffer(), {.name = "stuck", .deadline = 150ms});
    } catch (const Error& e) {
      error = e.message();
    }
    device.hang(false);
    if (error.find("\"stuck\"") == std::string::npos || error.find("for its device") == std::string::npos)
      throw std::runtime_error("not what was asked: " + error);
  });
}

TEST(DeviceBuffers, OfRanksThatDifferAreAnError_BeforeDataMoves) {
  LateDevice::instance();
  run_inproc(2, [&](Communicator& comm) {
    OnDevice x(100 + comm.rank(), DType::kF32);
    std::string error;
    try {
      comm.all_reduce(x.buffer());
    } catch (const Error& e) {
      error = e.message();
    }
    if (error.find("fp32 x 100") == std::string::npos || error.find("fp32 x 101") == std::string::npos)
      throw std::runtime_error("not what was asked: " + error);
  });
}

TEST(DeviceBuffers, OfSurvivorsEndWithPeerLost_SoonAfterAKill) {
  LateDevice::instance().stop();  // ranks are forked
  expect_within(1s, [] {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    ForkWorld world(3, [&](Communicator& comm) {
      OnDevice x(100000, DType::kF32);
      const std::vector<float> zeros(100000);
      for (int i = 0;; ++i) {
        x.write_late(zeros.data());
        comm.all_reduce(x.buffer(), {.name = "loop"});
        if (i == 20 && comm.rank() == 2 && write(ready[1], "x", 1) != 1) return;
      }
    });
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    const auto killed = steady_clock::now();
    world.kill(2, SIGKILL);
    const auto ends = world.wait();
    const auto took = steady_clock::now() - killed;
    close(ready[0]), close(ready[1]);
    for (const size_t rank : {0, 1}) EXPECT_THAT(ends[rank].error, HasSubstr("kPeerLost: rank 2 is lost"));
    return took;
  });
}

TEST(DeviceBuffers, TakeNoNewPageLockedMemoryOnceAllSizesHaveBeen) {
  LateDevice& device = LateDevice::instance();
  run_inproc(1, [&](Communicator& comm) {
    OnDevice x(100000, DType::kF32);
    comm.all_reduce(x.buffer());
    comm.all_reduce(x.buffer());
    const int before = device.host_allocations;
    for (int i = 0; i < 20; ++i) comm.all_reduce(x.buffer());
    EXPECT_EQ(device.host_allocations, before);
  });
}

TEST(RunForked, SaysHowEachRankEnded) {
  std::string error;
  try {
    run_forked(3, [](Communicator& comm) {
      if (comm.rank() == 1) throw std::runtime_error("the cause");
      if (comm.rank() == 0) comm.barrier({.name = "last"});
    });
  } catch (const Error& e) {
    error = e.message();
  }
  EXPECT_THAT(error, testing::MatchesRegex("rank 0 ended with wait status 256: kPeerLost: .*\"last\".*\n"
                                           "rank 1 ended with wait status 256: the cause"));
}

TEST(PageLockedPool, FreesWhatIsBeyondItsBound) {
  LateDevice& device = LateDevice::instance();
  comm::PageLockedPool pool(device);
  const int64_t block = int64_t{100} << 20;
  std::vector<std::shared_ptr<std::byte>> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(pool.take(block));
  blocks.clear();
  EXPECT_GT(pool.unused_bytes(), comm::PageLockedPool::kKept);
  EXPECT_EQ(pool.take(0), nullptr);
  pool.take(1);  // looks after the bound
  EXPECT_LE(pool.unused_bytes(), comm::PageLockedPool::kKept);
}

}  // namespace
}  // namespace herd
