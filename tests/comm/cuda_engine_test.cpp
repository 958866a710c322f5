// The engines of device memory on a GPU, with one, two and four ranks on it. Ranks are forked before any of them calls
// CUDA. Without a GPU there is nothing to test here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "herd/comm/nccl_library.h"
#include "tests/comm/device_check.h"
#include "tests/support/expect_within.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using std::chrono::steady_clock;
using testing::HasSubstr;

// Returns why a process of this machine finds no GPU; empty where it does. The process that asks is not this one.
std::string no_gpu() {
  try {
    run_forked(1, [](Communicator&) {
      if (device_driver(DeviceKind::kCuda).count() == 0) throw std::runtime_error("no GPU");
    });
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

Device device_of(const Communicator& comm) {
  tested_device = {DeviceKind::kCuda, comm.rank() % device_driver(DeviceKind::kCuda).count()};
  return tested_device;
}

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string why = no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};

void check_all(Communicator& comm) {
  const int n = comm.size();
  for (const int64_t count : {0, 1, n + 1}) check_collectives(comm, count, DType::kI32);
  check_collectives(comm, 40001, DType::kF32);
  check_collectives(comm, 301, DType::kBF16);
  check_collectives(comm, 777, DType::kF16);
  check_collectives(comm, 500, DType::kI64);
  check_collectives(comm, 3000017, DType::kF32);
  if (n == 3) check_uneven_counts(comm);
}

TEST_F(CudaEngine, StagedGivesWhatTheHostDoes) {
  for (const int n : {1, 2, 3, 4}) {
    run_forked(n, [](Communicator& comm) {
      if (comm.use_device(device_of(comm), DeviceEngine::kStaged).engine != DeviceEngine::kStaged)
        throw std::runtime_error("not staged");
      check_all(comm);
    });
  }
}

TEST_F(CudaEngine, IpcGivesWhatTheHostDoes) {
  for (const int n : {1, 2, 3, 4}) {
    run_forked(n, [](Communicator& comm) {
      comm.use_device(device_of(comm), DeviceEngine::kIpc);
      check_all(comm);
      Communicator half = comm.split(comm.rank() % 2, comm.rank());
      check_collectives(half, 10007, DType::kF32);
    });
  }
}

// Older releases of NCCL refuse two ranks on a GPU, so there are as many as GPUs.
TEST_F(CudaEngine, NcclGivesWhatTheHostDoes) {
  std::string why_not;
  if (comm::nccl_library(&why_not) == nullptr) GTEST_SKIP() << why_not;
  int num_gpus[2];
  ASSERT_EQ(pipe(num_gpus), 0);
  run_forked(1, [&](Communicator&) {
    const char count = static_cast<char>(device_driver(DeviceKind::kCuda).count());
    if (write(num_gpus[1], &count, 1) != 1) throw std::runtime_error("no pipe");
  });
  char count = 0;
  ASSERT_EQ(read(num_gpus[0], &count, 1), 1);
  close(num_gpus[0]), close(num_gpus[1]);
  run_forked(std::min<int>(count, 4), [](Communicator& comm) {
    comm.use_device(device_of(comm), DeviceEngine::kNccl);
    check_all(comm);
  });
}

TEST_F(CudaEngine, AutoTakesSomethingAndSaysWhy) {
  run_forked(2, [](Communicator& comm) {
    const DeviceEngineChoice choice = comm.use_device(device_of(comm));
    if (comm.rank() == 0)
      std::printf("auto: %s (%s)\n", std::string(device_engine_name(choice.engine)).c_str(), choice.reason.c_str());
    std::fflush(stdout);
    check_collectives(comm, 10007, DType::kF32);
  });
}

TEST_F(CudaEngine, SurvivorsOfAKillHearOfIt) {
  for (const DeviceEngine engine : {DeviceEngine::kStaged, DeviceEngine::kIpc}) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    ForkWorld world(3, [&](Communicator& comm) {
      comm.use_device(device_of(comm), engine);
      OnDevice x(1000000, DType::kF32);
      for (int i = 0;; ++i) {
        comm.all_reduce(x.buffer(), {.name = "loop", .deadline = 10s});
        if (i == 20 && comm.rank() == 2 && write(ready[1], "x", 1) != 1) return;
      }
    });
    close(ready[1]);
    char byte = 0;
    const bool began = read(ready[0], &byte, 1) == 1;
    const auto killed = steady_clock::now();
    world.kill(2, SIGKILL);
    const auto ends = world.wait();
    close(ready[0]);
    EXPECT_TRUE(began) << ends[0].error;
    if (!began) continue;
    EXPECT_LT(steady_clock::now() - killed, 12s);
    for (const size_t rank : {0, 1}) {
      EXPECT_THAT(ends[rank].error, testing::AnyOf(HasSubstr("kPeerLost: rank 2 is lost"), HasSubstr("kTimeout")))
          << device_engine_name(engine);
    }
  }
}

}  // namespace
}  // namespace herd
