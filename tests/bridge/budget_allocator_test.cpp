#include "herd/bridge/budget_allocator.h"

#include <gtest/gtest.h>

#include <thread>

#include "herd/base/error.h"

namespace herd {
namespace {

constexpr int64_t kMiB = 1 << 20;

at::Tensor bytes(int64_t count) { return at::empty({count}, at::kByte); }

struct Budget : testing::Test {
  void SetUp() override {
    DeviceMemory::install();
    DeviceMemory::set_budget(0);
    DeviceMemory::empty_cache();
    start = DeviceMemory::live_bytes();
    DeviceMemory::reset_peak();
  }
  void TearDown() override { DeviceMemory::set_budget(0); }
  int64_t start = 0;
};

TEST_F(Budget, CountsExactlyWhatTensorsAskFor) {
  {
    const at::Tensor a = bytes(1000), b = bytes(3 * kMiB + 1);
    EXPECT_EQ(DeviceMemory::live_bytes() - start, 1000 + 3 * kMiB + 1);
    const at::Tensor view = b.narrow(0, 5, 10);
    EXPECT_EQ(DeviceMemory::live_bytes() - start, 1000 + 3 * kMiB + 1);
  }
  EXPECT_EQ(DeviceMemory::live_bytes(), start);
  EXPECT_EQ(DeviceMemory::peak_bytes() - start, 1000 + 3 * kMiB + 1);
  DeviceMemory::reset_peak();
  EXPECT_EQ(DeviceMemory::peak_bytes(), start);
}

TEST_F(Budget, KeepsTheLabelOfTheAllocationUntilItIsFreed) {
  at::Tensor weights;
  {
    const MemoryLabelGuard outer(MemoryLabel::kWeights);
    weights = bytes(kMiB);
    const MemoryLabelGuard inner(MemoryLabel::kWorkspace);
    EXPECT_EQ(DeviceMemory::live_bytes(MemoryLabel::kWorkspace), 0);
    const at::Tensor scratch = bytes(77);
    EXPECT_EQ(DeviceMemory::live_bytes(MemoryLabel::kWorkspace), 77);
  }
  EXPECT_EQ(DeviceMemory::live_bytes(MemoryLabel::kWeights), kMiB);
  EXPECT_EQ(DeviceMemory::live_bytes(MemoryLabel::kWorkspace), 0);
  weights.reset();
  EXPECT_EQ(DeviceMemory::live_bytes(MemoryLabel::kWeights), 0);
}

TEST_F(Budget, WaitsForMemoryThatIsOnItsWay_AndAsksNobodyWhereItFits) {
  DeviceMemory::set_budget(start + 4 * kMiB);
  at::Tensor sent = bytes(3 * kMiB);
  int asked = 0;
  const ShortageHandler handler([&] {
    if (++asked == 3) sent.reset();
    return asked < 3;
  });
  { const at::Tensor fits = bytes(kMiB); }
  EXPECT_EQ(asked, 0);
  { const at::Tensor waits = bytes(2 * kMiB); }
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(DeviceMemory::peak_bytes() - start, 4 * kMiB);
  EXPECT_THROW(bytes(5 * kMiB), Error);  // at once: nothing more is on its way
  EXPECT_EQ(asked, 4);
}

TEST_F(Budget, RefusesOneByteTooManyWithTheTableOfWhatIsLive) {
  const MemoryLabelGuard label(MemoryLabel::kActivations);
  DeviceMemory::set_budget(start + 4 * kMiB);
  const at::Tensor held = bytes(3 * kMiB);
  EXPECT_NO_THROW(bytes(kMiB));
  try {
    bytes(kMiB + 1);
    ADD_FAILURE() << "went over the budget";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOverBudget);
    EXPECT_NE(error.message().find("activations 3 MiB"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("fix:"), std::string::npos);
  }
  EXPECT_EQ(DeviceMemory::live_bytes() - start, 3 * kMiB);
  EXPECT_THROW(CountedMemory(MemoryLabel::kWeights, 2 * kMiB), Error);
}

TEST_F(Budget, CountsMemoryThatIsNotTorchs) {
  {
    const CountedMemory flat(MemoryLabel::kGradients, 5 * kMiB);
    EXPECT_EQ(DeviceMemory::live_bytes(MemoryLabel::kGradients), 5 * kMiB);
  }
  EXPECT_EQ(DeviceMemory::live_bytes(), start);
}

TEST_F(Budget, UsesAFreedBlockAgain) {
  const void* first = bytes(8 * kMiB).data_ptr();
  EXPECT_GE(DeviceMemory::cached_bytes(), 8 * kMiB);
  const at::Tensor again = bytes(8 * kMiB - kMiB / 2);  // fills enough of it
  EXPECT_EQ(again.data_ptr(), first);
  EXPECT_EQ(DeviceMemory::live_bytes() - start, 8 * kMiB - kMiB / 2);
  DeviceMemory::empty_cache();
  EXPECT_EQ(DeviceMemory::cached_bytes(), 0);
}

TEST_F(Budget, KeptBlocksRaiseThePeakOfMemoryHeldByANinthAtMost) {
  int64_t peak = 0;
  for (int64_t size = 1; size <= 40; ++size) {
    const at::Tensor a = bytes(size * kMiB), b = bytes((41 - size) * kMiB);
    peak = std::max(peak, DeviceMemory::live_bytes() - start);
    EXPECT_LE(DeviceMemory::live_bytes() - start + DeviceMemory::cached_bytes(), peak + peak / 8 + kMiB);
  }
}

TEST_F(Budget, KeepsWhatEachPhaseOfAStepNeeds_WhereThatIsAtMostTheNinthMore) {
  for (int step = 0; step < 3; ++step) {
    std::vector<at::Tensor> graph;
    for (int block = 0; block < 10; ++block) graph.push_back(bytes(8 * kMiB));
    bytes(16 * kMiB);  // of the loss: the peak is 96 MiB
    const at::Tensor dx = bytes(4 * kMiB), scratch = bytes(4 * kMiB);
  }
  EXPECT_EQ(DeviceMemory::cached_bytes(), (10 * 8 + 16 + 2 * 4) * kMiB);
}

TEST_F(Budget, MakesRoomByTheSmallestBlockThatSuffices) {
  { const at::Tensor a = bytes(320 * kMiB), b = bytes(40 * kMiB); }  // a higher peak than other tests leave
  const at::Tensor more = bytes(80 * kMiB);
  EXPECT_EQ(DeviceMemory::cached_bytes(), 320 * kMiB);
}

TEST_F(Budget, CountsRightFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int64_t i = 0; i < 500; ++i) {
        const at::Tensor small = bytes(100 + i), big = bytes(kMiB + i * 1000);
        big[0] = 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(DeviceMemory::live_bytes(), start);
}

}  // namespace
}  // namespace herd
