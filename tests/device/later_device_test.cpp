// What the device of the tests promises: nothing happens before a wait, and forgotten waits show.
#include "tests/device/later_device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <set>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/kernels/device_kernels.h"
#include "herd/runtime/device_lane.h"

namespace herd::later {
namespace {

struct LaterDevice : testing::Test {
  static at::TensorOptions installed() {
    install(7);
    return at::TensorOptions().dtype(at::kFloat).device(device());
  }
  ~LaterDevice() override { run_all(); }
  const at::TensorOptions options = installed();
  const c10::impl::VirtualGuardImpl guard{c10::kPrivateUse1};
  DeviceDriver& driver = device_driver(DeviceKind::kExtension);
};
using LaterDeviceDeathTest = LaterDevice;

TEST_F(LaterDevice, KnowsNothingBeforeAWait) {
  auto* host = static_cast<float*>(driver.allocate_host(4));
  const at::Tensor seven = at::full({1}, 7.0, options);
  *host = 0;
  driver.copy(host, seven.data_ptr(), 4, 0, nullptr);
  EXPECT_EQ(*host, 0);
  driver.record(0, nullptr)->wait();
  EXPECT_EQ(*host, 7);
  driver.free_host(host);
}

TEST_F(LaterDeviceDeathTest, EndsTheProcessThatReadsItsMemoryFromTheHost) {
  const at::Tensor tensor = at::ones({5}, options);
  run_all();
  EXPECT_EXIT(static_cast<void>(*static_cast<volatile float*>(tensor.data_ptr())), testing::KilledBySignal(SIGSEGV),
              "");
}

TEST_F(LaterDevice, ComputesOnItsStreamsInTheirOrder) {
  at::Tensor sum = at::zeros({1000}, options);
  for (int i = 0; i < 10; ++i) sum = sum * 2 + 1;
  EXPECT_TRUE(at::equal(sum.cpu(), at::full({1000}, 1023.0)));
}

// Two streams, one value: what the second reads depends on the wait.
std::set<float> values_across_streams(const LaterDevice& test, bool waits) {
  std::set<float> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    install(seed);
    const c10::Stream first = test.guard.getStreamFromGlobalPool(device());
    const c10::Stream second = test.guard.getStreamFromGlobalPool(device());
    at::Tensor written = at::full({3}, 1.0, test.options);
    run_all();
    at::Tensor read;
    {
      const c10::StreamGuard on_first(first);
      written.fill_(2.0);
    }
    c10::Event event(c10::kPrivateUse1);
    event.record(first);
    if (waits) event.block(second);
    {
      const c10::StreamGuard on_second(second);
      read = written + 0;
      seen.insert(read[1].item<float>());
    }
  }
  return seen;
}

TEST_F(LaterDevice, ShowsAMissingWaitBetweenStreams) {
  EXPECT_EQ(values_across_streams(*this, false), (std::set<float>{1, 2}));
  EXPECT_EQ(values_across_streams(*this, true), std::set<float>{2});
}

TEST_F(LaterDevice, FillsMemoryWithNansBeforeItIsWrittenAndOnceItIsFreed) {
  EXPECT_TRUE(at::isnan(at::empty({3}, options)).all().item<bool>());
  int num_wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    install(seed);
    const c10::Stream other = guard.getStreamFromGlobalPool(device());
    at::Tensor freed = at::ones({1000}, options);
    run_all();
    const c10::StreamGuard on_other(other);
    const at::Tensor read = freed + 0;
    freed.reset();  // its stream is the default stream, where nothing waits for `other`
    num_wrong += at::isnan(read).any().item<bool>();
  }
  EXPECT_GT(num_wrong, 0);
}

TEST_F(LaterDevice, KeepsWhatAnotherStreamStillUses) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    install(seed);
    const c10::Stream other = guard.getStreamFromGlobalPool(device());
    at::Tensor freed = at::ones({1000}, options);
    run_all();
    const c10::StreamGuard on_other(other);
    const at::Tensor read = freed + 0;
    freed.record_stream(other);
    freed.reset();
    EXPECT_FALSE(at::isnan(read).any().item<bool>());
  }
}

TEST_F(LaterDevice, KeepsFreedMemoryUntilItsOwnStreamIsDone) {
  at::Tensor sum = at::zeros({}, options);
  for (int i = 0; i < 50; ++i) sum += at::full({100}, 1.0, options).sum();  // every term is freed before it is read
  EXPECT_EQ(sum.item<float>(), 5000);
}

TEST_F(LaterDevice, ReadsPageLockedMemoryLaterAndPageableMemoryAtOnce) {
  const at::Tensor locked = at::ones({4}, at::TensorOptions().pinned_memory(true));
  at::Tensor pageable = at::ones({4});
  ASSERT_TRUE(locked.is_pinned());
  const at::Tensor from_locked = at::empty({4}, options).copy_(locked, true);
  const at::Tensor from_pageable = at::empty({4}, options).copy_(pageable, true);
  locked.fill_(2);
  pageable.fill_(2);
  EXPECT_EQ(from_locked.sum().item<float>(), 8);  // a race, which a wait before the write would mend
  EXPECT_EQ(from_pageable.sum().item<float>(), 4);
}

TEST_F(LaterDevice, CountsWhatTheHostWaitsFor) {
  const at::Tensor tensor = at::arange(6, options);
  const at::Tensor indices = at::arange(3, options.dtype(at::kLong));
  const auto waits = [](const std::function<void()>& function) {
    const int64_t before = synchronisations();
    function();
    return synchronisations() - before;
  };
  EXPECT_EQ(waits([&] { at::softmax((tensor * 2).view({2, 3}), 1).sum(0).index_select(0, indices).exp_(); }), 0);
  EXPECT_EQ(waits([&] { tensor.sum().item(); }), 1);
  EXPECT_EQ(waits([&] { at::nonzero(tensor); }), 1);
  EXPECT_EQ(waits([&] { tensor.cpu(); }), 1);
  EXPECT_EQ(waits([&] { at::ones({2}).to(device()); }), 1);
  EXPECT_EQ(waits([&] { tensor.index({tensor > 2}); }), 1);
  EXPECT_EQ(waits([&] { guard.synchronizeStream(guard.getStream(device())); }), 1);
  std::string reason;
  on_synchronisation([&](const char* name) { reason = name; });
  tensor.sum().item();
  on_synchronisation(nullptr);
  EXPECT_EQ(reason, "item");
}

TEST_F(LaterDevice, ReportsWhatAJobThrewAtTheNextWait) {
  at::Tensor tensor = at::zeros({3}, options);
  tensor.add_(at::ones({4}, options));
  EXPECT_THROW(tensor.sum().item(), std::exception);
  EXPECT_EQ(at::ones({3}, options).sum().item<float>(), 3);
}

TEST_F(LaterDevice, DrivesStreamsOfHerd) {
  const StreamHandle stream = driver.create_stream(0);
  auto* host = static_cast<float*>(driver.allocate_host(8));
  host[0] = 3;
  host[1] = 0;
  at::Tensor tensor = at::full({1}, 1.0, options);
  driver.record(0, current_stream(device()))->hold(stream);
  driver.copy(tensor.data_ptr(), host, 4, 0, stream);
  driver.copy(host + 1, tensor.data_ptr(), 4, 0, stream);
  const DeviceEventPtr copied = driver.record(0, stream);
  copied->hold(current_stream(device()));
  std::atomic<bool> called{false};
  driver.call(0, stream, [&] { called = true; });
  EXPECT_EQ(tensor.item<float>(), 3);
  while (!copied->done()) {
  }
  EXPECT_EQ(host[1], 3);
  while (!called) {
  }
  float pageable = 0;
  EXPECT_THROW(driver.copy(&pageable, tensor.data_ptr(), 4, 0, stream), Error);
  driver.destroy_stream(0, stream);
  driver.free_host(host);
}

TEST_F(LaterDevice, RunsLanesOfHerd_WhoseJobsAreHeldOnceTheComputingStreamWaits) {
  const auto compute = runtime::device_inline_lane(device());
  const auto copies = runtime::device_thread_lane("copies", device());
  const at::Tensor values = at::zeros({3}, options);
  const auto adds = [&]() -> runtime::EventPtr {
    values.add_(1);
    return nullptr;
  };
  const runtime::EventPtr computed = compute->submit({}, adds);
  EXPECT_TRUE(computed->held());
  EXPECT_FALSE(computed->done());
  const runtime::EventPtr first = copies->submit({computed}, adds), second = copies->submit({}, adds);
  copies->drain();
  const runtime::EventPtr third = copies->submit({compute->submit({}, adds)}, adds),
                          last = copies->submit({third}, adds);
  EXPECT_FALSE(third->held());
  compute->submit({third}, adds);
  EXPECT_TRUE(third->held());
  EXPECT_FALSE(third->done());
  EXPECT_FALSE(last->held()) << "the computing stream waits for the job before it";
  last->wait();
  EXPECT_TRUE(first->held() && second->held() && last->held());
  compute->drain();
  EXPECT_EQ(values.sum().item<float>(), 3 * 7);
  const runtime::EventPtr fails = copies->submit({}, []() -> runtime::EventPtr { throw Error(Code::kBug, "lost"); });
  EXPECT_THROW(fails->wait(), Error);
  EXPECT_FALSE(fails->held());
}

TEST_F(LaterDevice, RunsKernelsOfHerdOnStreams) {
  const StreamHandle stream = driver.create_stream(0);
  const at::Tensor values = at::arange(5, options);
  at::Tensor sum = at::zeros({1}, options.dtype(at::kDouble));
  const at::Tensor parts = at::empty({kernels::kSumParts}, options.dtype(at::kDouble));
  driver.record(0, nullptr)->hold(stream);
  kernels::SumOfSquaresCall call;
  call.values = values.data_ptr();
  call.count = 5;
  call.sum = sum.data_ptr<double>();
  call.parts = parts.data_ptr<double>();
  kernels::device_kernels(DeviceKind::kExtension).sum_of_squares({0, stream}, call);
  driver.record(0, stream)->hold(nullptr);
  EXPECT_EQ(sum.item<double>(), 30);
  driver.destroy_stream(0, stream);
}

TEST_F(LaterDevice, CountsItsMemory) {
  auto* allocator = c10::getDeviceAllocator(c10::kPrivateUse1);
  const auto bytes = [&] { return allocator->getDeviceStats(0).requested_bytes[0]; };
  const int64_t before = bytes().current;
  at::Tensor tensor = at::empty({100}, options);
  EXPECT_EQ(bytes().current - before, 400);
  tensor.reset();
  EXPECT_EQ(bytes().current, before);
  EXPECT_GE(bytes().peak, before + 400);
  allocator->resetPeakStats(0);
  EXPECT_EQ(bytes().peak, before);
}

TEST_F(LaterDevice, TimesEvents) {
  c10::Event begin(c10::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(c10::kPrivateUse1, c10::EventFlag::BACKEND_DEFAULT);
  begin.record(guard.getStream(device()));
  at::Tensor work = at::ones({1000}, options).exp();
  end.record(guard.getStream(device()));
  EXPECT_THROW(begin.elapsedTime(end), c10::Error);
  end.synchronize();
  EXPECT_GT(begin.elapsedTime(end), 0);
}

TEST_F(LaterDevice, IsADeviceOfHerd) {
  EXPECT_EQ(to_device(device()).kind, DeviceKind::kExtension);
  EXPECT_EQ(current_stream(device()), nullptr);
  const c10::Stream stream = guard.getStreamFromGlobalPool(device());
  const c10::StreamGuard on_stream(stream);
  EXPECT_EQ(current_stream(device()), handle_of(stream));
  EXPECT_NE(handle_of(stream), nullptr);
}

}  // namespace
}  // namespace herd::later
