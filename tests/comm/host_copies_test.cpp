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
#include "tests/comm/late_device.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using std::chrono::steady_clock;
using testing::HasSubstr;

// The same elements on the host and on a device.
class Twin {
 public:
  Twin(Rank rank, int64_t count, DType dtype, int seed = 0)
      : host_(static_cast<size_t>(count * size_of(dtype))), device_(count, dtype), dtype_(dtype) {
    for (int64_t i = 0; i < count; ++i) store(dtype, host_.data(), i, value_of(rank + seed, i));
    device_.write_late(host_.data());
  }
  Buffer host(int64_t begin = 0, int64_t count = -1) {
    return {host_.data() + begin * size_of(dtype_), count < 0 ? device_.buffer().count : count, dtype_};
  }
  Buffer device(int64_t begin = 0, int64_t count = -1) {
    return count < 0 ? device_.buffer() : device_.part(begin, count);
  }
  void expect_same(const std::string& what, int64_t begin = 0, int64_t count = -1) const {
    const std::vector<std::byte> got = device_.read();
    const int64_t first = begin * size_of(dtype_);
    const int64_t bytes = count < 0 ? static_cast<int64_t>(host_.size()) : count * size_of(dtype_);
    if (bytes > 0 && std::memcmp(got.data() + first, host_.data() + first, static_cast<size_t>(bytes)) != 0)
      throw std::runtime_error(what + " of " + std::to_string(device_.buffer().count) +
                               ": the device holds other bytes than the host");
  }

 private:
  std::vector<std::byte> host_;
  OnDevice device_;
  DType dtype_;
};

// Runs every collective on both, the one on the host between those on the device.
void check_collectives(Communicator& comm, int64_t count, DType dtype) {
  const int n = comm.size();
  const Rank self = comm.rank();
  const Range mine = part_of(count, n, self);
  const OpOptions options = {.op = dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum};
  Twin x(self, count, dtype), y(self, count, dtype), z(self, count, dtype);
  Work first = comm.all_reduce_async(x.device(), options);
  comm.all_reduce(x.host(), options);
  Work second = comm.broadcast_async(y.device(), n - 1);
  Work third = comm.reduce_async(z.device(), n / 2, options);
  comm.broadcast(y.host(), n - 1);
  comm.reduce(z.host(), n / 2, options);
  third.wait();
  if (!first.done() || !second.done()) throw std::runtime_error("operations of a group end in issue order");
  x.expect_same("all_reduce"), y.expect_same("broadcast"), z.expect_same("reduce");

  for (const bool in_place : {false, true}) {
    Twin part(self, mine.size(), dtype, 1), whole(self, count, dtype, 2);
    comm.all_gather(in_place ? whole.host(mine.begin, mine.size()) : part.host(), whole.host());
    comm.all_gather(in_place ? whole.device(mine.begin, mine.size()) : part.device(), whole.device());
    whole.expect_same("all_gather");
    Twin from(self, count, dtype, 3), to(self, mine.size(), dtype, 4);
    comm.reduce_scatter(from.device(), in_place ? from.device(mine.begin, mine.size()) : to.device(), options);
    comm.reduce_scatter(from.host(), in_place ? from.host(mine.begin, mine.size()) : to.host(), options);
    in_place ? from.expect_same("reduce_scatter", mine.begin, mine.size()) : to.expect_same("reduce_scatter");
  }

  Twin equal(self, count, dtype, 5), all(self, count * n, dtype, 6), sent(self, count * n, dtype, 7);
  for (const Rank root : {0, n - 1}) {
    comm.gather(equal.host(), all.host(), root);
    comm.gather(equal.device(), all.device(), root);
    all.expect_same("gather");
    comm.scatter(sent.host(), equal.host(), root);
    comm.scatter(sent.device(), equal.device(), root);
    equal.expect_same("scatter");
  }
  comm.all_to_all(sent.device(), all.device());
  comm.all_to_all(sent.host(), all.host());
  all.expect_same("all_to_all");
  comm.all_to_all(all.device(), all.device());
  comm.all_to_all(all.host(), all.host());
  all.expect_same("all_to_all in place");
}

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

TEST(DeviceBuffers, MayBeLarge) {
  LateDevice::instance();
  run_inproc(3, [&](Communicator& comm) { check_collectives(comm, 1 << 20, DType::kF32); });
}

TEST(DeviceBuffers, TakeUnevenCountsAndFactors) {
  LateDevice::instance();
  run_inproc(3, [&](Communicator& comm) {
    const std::vector<int64_t> counts = {5, 0, 1000};
    const int64_t mine = counts[static_cast<size_t>(comm.rank())];
    Twin part(comm.rank(), mine, DType::kF32), whole(comm.rank(), 1005, DType::kF32, 1);
    comm.all_gather(part.device(), whole.device(), {.counts = counts});
    comm.all_gather(part.host(), whole.host(), {.counts = counts});
    whole.expect_same("all_gather");
    const OpOptions scaled = {.op = ReduceOp::kPremultipliedSum, .counts = counts, .factor = 0.5 + comm.rank()};
    comm.reduce_scatter(whole.device(), part.device(), scaled);
    comm.reduce_scatter(whole.host(), part.host(), scaled);
    part.expect_same("reduce_scatter");
    comm.all_reduce(whole.device(), {.op = ReduceOp::kPremultipliedSum, .factor = 0.25});
    comm.all_reduce(whole.host(), {.op = ReduceOp::kPremultipliedSum, .factor = 0.25});
    whole.expect_same("all_reduce");
    const std::vector<int64_t> blocks = {1, 0, 30, 7, 2, 0, 0, 0, 400};
    const auto sum_of = [&](int64_t first, int64_t step) {
      return blocks[static_cast<size_t>(first)] + blocks[static_cast<size_t>(first + step)] +
             blocks[static_cast<size_t>(first + 2 * step)];
    };
    Twin out(comm.rank(), sum_of(3 * comm.rank(), 1), DType::kI64),
        in(comm.rank(), sum_of(comm.rank(), 3), DType::kI64);
    comm.all_to_all(out.device(), in.device(), {.counts = blocks});
    comm.all_to_all(out.host(), in.host(), {.counts = blocks});
    in.expect_same("all_to_all");
  });
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
