#include "herd/memory/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "herd/base/error.h"
#include "herd/base/units.h"

namespace herd {
namespace {

TEST(SharedMemory, IsZeroAndTheSameBytesInASecondMapping) {
  SharedMemory one = SharedMemory::create("test", 3 * kPageBytes);
  one.commit(0, 3 * kPageBytes);
  const SharedMemory two = SharedMemory::adopt(dup(one.descriptor()), 3 * kPageBytes);
  EXPECT_EQ(two.data()[kPageBytes], std::byte{0});
  one.data()[kPageBytes] = std::byte{42};
  EXPECT_EQ(two.data()[kPageBytes], std::byte{42});
  EXPECT_NE(one.data(), two.data());
}

TEST(SharedMemory, CannotBeCutOffByWhoHasItsDescriptor) {
  SharedMemory one = SharedMemory::create("test", 3 * kPageBytes);
  one.commit(0, 3 * kPageBytes);
  EXPECT_NE(ftruncate(one.descriptor(), kPageBytes), 0);
  EXPECT_NE(ftruncate(one.descriptor(), 4 * kPageBytes), 0);
  one.data()[2 * kPageBytes] = std::byte{1};  // else SIGBUS
}

TEST(SharedMemory, CommitsAnyRangeOfALargeMapping_AndKeepsWhatItHolds) {
  constexpr int64_t kMiB = 1 << 20;
  SharedMemory one = SharedMemory::create("test", 11 * kMiB);
  one.commit(10 * kMiB, kMiB);
  one.data()[10 * kMiB] = std::byte{1};
  one.commit(kPageBytes, 9 * kMiB);  // whole blocks of 2 MiB and parts of some
  one.commit(0, kPageBytes);
  one.data()[0] = one.data()[5 * kMiB] = std::byte{2};
  one.commit(0, 11 * kMiB);
  const SharedMemory two = SharedMemory::adopt(dup(one.descriptor()), 11 * kMiB);
  for (const int64_t at : {int64_t{0}, 5 * kMiB}) EXPECT_EQ(two.data()[at], std::byte{2});
  EXPECT_EQ(two.data()[10 * kMiB], std::byte{1});
  EXPECT_EQ(two.data()[7 * kMiB], std::byte{0});
}

TEST(SharedMemory, StaysMappedWhenItsDescriptorIsClosedAndWhenItMoves) {
  SharedMemory one = SharedMemory::create("test", kPageBytes);
  one.commit(0, kPageBytes);
  one.data()[7] = std::byte{7};
  one.close_descriptor();
  const SharedMemory two = std::move(one);
  EXPECT_EQ(two.data()[7], std::byte{7});
  EXPECT_EQ(two.bytes(), kPageBytes);
  EXPECT_EQ(two.descriptor(), -1);
}

TEST(SharedMemory, CommitsPagesWithoutItsDescriptor) {
  if (!SharedMemory::commits_without_descriptor()) GTEST_SKIP() << "this kernel does not";
  constexpr int64_t kMiB = 1 << 20;
  SharedMemory one = SharedMemory::create("test", 7 * kMiB);
  one.commit(0, kPageBytes);
  const SharedMemory two = SharedMemory::adopt(dup(one.descriptor()), 7 * kMiB);
  struct stat info {};
  one.close_descriptor();
  one.commit(kMiB, 5 * kMiB);  // a whole block of 2 MiB and parts of two
  ASSERT_EQ(fstat(two.descriptor(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 5 * kMiB + kPageBytes);
  EXPECT_LE(info.st_blocks * 512, 7 * kMiB);
  one.data()[2 * kMiB] = std::byte{3};
  EXPECT_EQ(two.data()[2 * kMiB], std::byte{3});
}

TEST(SharedMemory, CommitBeyondTheMachineNamesTheBytesWantedAndAvailable) {
  const int64_t bytes = 2 * static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  SharedMemory huge = SharedMemory::create("test", bytes);
  try {
    huge.commit(0, bytes);
    FAIL() << "twice the machine's memory was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kStorage);
    EXPECT_THAT(error.what(), testing::HasSubstr(
                                  "too little shared memory: " + format_bytes(static_cast<double>(bytes)) + " wanted"));
    EXPECT_THAT(error.what(), testing::HasSubstr("fix: "));
  }
}

TEST(SharedMemory, AFileSizeLimitIsAnErrorAndNoSignal) {
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {kPageBytes, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(SharedMemory::create("test", 16 * kPageBytes), Error);
  setrlimit(RLIMIT_FSIZE, &before);
}

TEST(AvailableMemory, IsMoreThanNothingAndLessThanAMap) {
  EXPECT_GT(available_memory(), 1 << 20);
  EXPECT_LT(available_memory(), int64_t{1} << 46);
}

}  // namespace
}  // namespace herd
