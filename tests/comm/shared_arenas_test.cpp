// Collectives on memory that devices open to each other, against the same on memory of the host.
#include "herd/comm/shared_arenas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/choose_device_engine.h"
#include "herd/comm/inproc_world.h"
#include "tests/comm/device_check.h"
#include "tests/comm/late_device.h"
#include "tests/comm/late_kernels.h"
#include "tests/support/expect_error.h"

namespace herd {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;

constexpr Device kLate = {DeviceKind::kExtension, 0};

void run_in_arenas(int n, const std::function<void(Communicator&)>& body, const std::vector<int>& hosts = {}) {
  LateDevice::instance();
  LateKernels::install();
  run_inproc(
      n,
      [&](Communicator& comm) {
        const DeviceEngineChoice choice = comm.use_device(kLate, DeviceEngine::kIpc);
        if (choice.engine != DeviceEngine::kIpc) throw std::runtime_error(choice.reason);
        body(comm);
      },
      hosts);
}

TEST(SharedArenas, HoldWhatTheHostsDo_AfterEveryCollective) {
  for (int n = 1; n <= 5; ++n) {
    run_in_arenas(n, [&](Communicator& comm) {
      for (const int64_t count : {0, 1, n + 1}) check_collectives(comm, count, DType::kI32);
      check_collectives(comm, 40001, DType::kF32);
      check_collectives(comm, 301, DType::kBF16);
      check_collectives(comm, 77, DType::kBool);
    });
  }
}

TEST(SharedArenas, TakeTwoStepsWhereMessagesAreLarge) {
  for (const int n : {2, 3})
    run_in_arenas(n, [&](Communicator& comm) { check_collectives(comm, 200003, DType::kF32); });
}

TEST(SharedArenas, TakeUnevenCounts_AndLeaveFactorsToTheHost) { run_in_arenas(3, check_uneven_counts); }

TEST(SharedArenas, CutWhatDoesNotFitIntoWindows) {
  LateDevice::instance();
  LateKernels::install();
  run_inproc(3, [&](Communicator& comm) {
    comm::use_small_arenas(comm, kLate, 8 << 10);
    for (const int64_t count : {1, 5000, 20011}) check_collectives(comm, count, DType::kF32);
    check_uneven_counts(comm);
  });
}

TEST(SharedArenas, RunManyOperationsBehindEachOther_AlsoInGroups) {
  run_in_arenas(4, [&](Communicator& comm) {
    Communicator half = comm.split(comm.rank() % 2, comm.rank());
    if (half.device_engine().engine != DeviceEngine::kIpc) throw std::runtime_error(half.device_engine().reason);
    std::vector<std::unique_ptr<Twin>> twins;
    std::vector<Work> works;
    for (int i = 0; i < 40; ++i) {
      twins.push_back(std::make_unique<Twin>(comm.rank(), 37 * (i % 9), DType::kF32, i));
      Communicator& group = i % 3 == 0 ? half : comm;
      works.push_back(group.all_reduce_async(twins.back()->device()));
      works.push_back(group.all_reduce_async(twins.back()->host()));
    }
    for (Work& work : works) work.wait();
    for (const auto& twin : twins) twin->expect_same("all_reduce");
  });
}

TEST(SharedArenas, NameWhatDiffers_AndTheDeviceThatNeverComes) {
  LateDevice& device = LateDevice::instance();
  const auto error_of = [](Communicator& comm, const Buffer& buffer) -> std::string {
    try {
      comm.all_reduce(buffer, {.name = "grads", .deadline = 200ms});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  std::atomic<int> told = 0;
  run_in_arenas(2, [&](Communicator& comm) {
    OnDevice x(100 + comm.rank(), DType::kF32);
    const std::string error = error_of(comm, x.buffer());
    if (error.find("fp32 x 100") == std::string::npos || error.find("fp32 x 101") == std::string::npos ||
        error.find("ipc") == std::string::npos)
      throw std::runtime_error("not what was asked: " + error);
  });
  run_in_arenas(2, [&](Communicator& comm) {
    OnDevice x(100, DType::kF32);
    comm.barrier();
    device.hang(true);
    const std::string error = error_of(comm, x.buffer());
    device.hang(false);
    if (error.find("for its device") != std::string::npos)
      ++told;
    else if (error != "no error")  // the other rank let the device go on in time
      throw std::runtime_error("not what was asked: " + error);
  });
  EXPECT_GE(told, 1);
}

TEST(SharedArenas, AreNotChosenWhereTheDeviceRefuses_OrRanksAreApart) {
  LateDevice& device = LateDevice::instance();
  LateKernels::install();
  device.refuses_sharing = true;
  run_inproc(2, [&](Communicator& comm) {
    const DeviceEngineChoice choice = comm.use_device(kLate);
    if (choice.engine != DeviceEngine::kStaged || choice.reason.find("shares nothing today") == std::string::npos)
      throw std::runtime_error(choice.reason);
    EXPECT_ERROR(comm.use_device(kLate, DeviceEngine::kIpc), Code::kBadConfig, "shares nothing today");
    check_collectives(comm, 1000, DType::kF32);
  });
  device.refuses_sharing = false;
  run_inproc(2,
             [&](Communicator& comm) {
               EXPECT_ERROR(comm.use_device(kLate, DeviceEngine::kIpc), Code::kBadConfig, "several hosts");
               if (comm.use_device(kLate).engine != DeviceEngine::kStaged) throw std::runtime_error("not staged");
             },
             {0, 1});
}

}  // namespace
}  // namespace herd
