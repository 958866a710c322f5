#include "herd/measure/memory_probe.h"

#include <gtest/gtest.h>

namespace herd::measure {
namespace {

TEST(MemoryProbe, AllOfSeveralCopyNoFasterThanTheLeastOfThem) {
  const MemoryProbe probe = memory_probe_of(3, {10, 40}, least_of({12, 60}, least_of({15, 50}, {13, 70})));
  EXPECT_EQ(probe.ranks, 3);
  EXPECT_EQ(probe.alone_us, 10);
  EXPECT_EQ(probe.alone_past_cache_us, 40);
  EXPECT_EQ(probe.all_us, 12);
  EXPECT_EQ(probe.all_past_cache_us, 50);
}

TEST(MemoryProbe, ThreadsTimeWhatTheRanksOfAJobWould) {
  const MemoryProbe probe = probe_memory(2);
  EXPECT_EQ(probe.ranks, 2);
  for (const double us : {probe.alone_us, probe.all_us, probe.alone_past_cache_us, probe.all_past_cache_us}) {
    EXPECT_GT(static_cast<double>(probe.bytes) / us, 10);  // bytes/us: a sanitizer's rate
    EXPECT_LT(static_cast<double>(probe.bytes) / us, 1e6);
  }
}

}  // namespace
}  // namespace herd::measure
