#include <gtest/gtest.h>

#include <cmath>

#include "herd/comm/inproc_world.h"
#include "herd/kernels/half.h"
#include "tests/comm/collective_check.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample.h"

namespace herd {
namespace {

using namespace testing_support;
using kernels::bf16_from_float;
using kernels::float_from_bf16;

class CollectivesInproc : public testing::TestWithParam<int> {};

TEST_P(CollectivesInproc, GiveExactlyTheDefinition_ByEveryAlgorithm) {
  const int n = GetParam();
  std::vector<int64_t> counts;
  for (int index = n; const int64_t count : {0, 1, n - 1, n, n + 1, 1000, 9001})
    if (++index % one_in(1, 3) == 0) counts.push_back(count);
  run_inproc(n, [&](Communicator& comm) { check_everything(comm, counts); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesInproc, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

TEST(CollectivesInprocTypes, ReduceEveryDTypeByEveryOpThatItHas) {
  run_inproc(3, [](Communicator& comm) {
    for (DType dtype : kAllDTypes) {
      for (ReduceOp op : kReduceOps) {
        if (!supports(op, dtype)) continue;
        if (op == ReduceOp::kAverage) continue;
        for (const char* name : {"ring", "staged", "direct_push"}) {
          check_all_reduce(comm, 101, {name, name[0] == 'd', dtype, op});
        }
      }
    }
  });
}

TEST(RunInproc, RefusesHostsThatAreNotThoseOfItsRanks) {
  for (const std::vector<int>& hosts :
       {std::vector{0, 0}, std::vector{0, 0, 1, 1}, std::vector{-1, 0, 1}, std::vector{0, 2, 1}})
    EXPECT_ERROR(run_inproc(
                     3, [](Communicator&) {}, hosts),
                 Code::kBadConfig, "wants the host of each of 3 ranks");
}

TEST(CollectivesInprocTypes, AverageDividesByTheRanks) {
  run_inproc(4, [](Communicator& comm) {
    for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      for (const char* name : {"ring", "staged", "direct_pull", "direct_push"}) {
        Elements x(comm, 1000, dtype, name[0] == 'd');
        for (int64_t i = 0; i < 1000; ++i) x.set(i, static_cast<double>(4 * (i % 7) * (comm.rank() == 2)));
        comm.all_reduce(x.buffer(), {.op = ReduceOp::kAverage, .algorithm = name});
        for (int64_t i = 0; i < 1000; ++i) expect_equal(x.get(i), static_cast<double>(i % 7), name);
      }
    }
  });
}

// Gradients in bf16, whose sum is compared with the exact one: root mean square of (sum - exact) / exact's own.
double rounding_of(const std::string& algorithm, int ranks, bool& rounded_once) {
  constexpr int64_t kElements = 20000;
  const auto value = [](int rank, int64_t i) {  // uniform in [-1, 1), in bf16
    uint64_t x = (static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(i)) + 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return float_from_bf16(bf16_from_float(static_cast<float>(x >> 40) * 0x1p-23f - 1));
  };
  double error = 0, size = 0;
  bool once = true;
  run_inproc(ranks, [&](Communicator& comm) {
    Elements x(comm, kElements, DType::kBF16, algorithm[0] == 'd');
    for (int64_t i = 0; i < kElements; ++i) x.set(i, static_cast<double>(value(comm.rank(), i)));
    comm.all_reduce(x.buffer(), {.algorithm = algorithm});
    if (comm.rank() != 0) return;
    for (int64_t i = 0; i < kElements; ++i) {
      float exact = 0;  // 8 bits from each of few ranks: fp32 holds it
      for (int rank = 0; rank < ranks; ++rank) exact += value(rank, i);
      once = once && x.get(i) == static_cast<double>(float_from_bf16(bf16_from_float(exact)));
      error += (x.get(i) - static_cast<double>(exact)) * (x.get(i) - static_cast<double>(exact));
      size += static_cast<double>(exact) * static_cast<double>(exact);
    }
  });
  rounded_once = once;
  return std::sqrt(error / size);
}

TEST(SixteenBitSums, RoundOnceWithinAHost_AndOnceAHopWhereMessagesAreAdded) {
  for (const int ranks : {2, 4, 8}) {
    bool once = false;
    const double staged = rounding_of("staged", ranks, once);
    EXPECT_TRUE(once) << ranks;
    EXPECT_EQ(rounding_of("direct_pull", ranks, once), staged);
    EXPECT_TRUE(once) << ranks;
    EXPECT_LT(staged, 0x1p-9) << "half a unit in the last of 8 bits, at most";
    const double ring = rounding_of("ring", ranks, once);
    EXPECT_EQ(once, ranks == 2);
    EXPECT_LE(ring, staged * std::sqrt(ranks - 1));  // partial sums are smaller than the whole
    RecordProperty("ring_of_" + std::to_string(ranks), std::to_string(ring / staged));
    RecordProperty("once_of_" + std::to_string(ranks), std::to_string(staged * 512));
  }
}

TEST(CollectivesInprocTypes, TheLecturesExamplesHold) {
  run_inproc(2, [](Communicator& comm) {
    std::vector<float> x = comm.rank() == 0 ? std::vector<float>{1, 2, 3} : std::vector<float>{1, 0, 1};
    comm.all_reduce(x);
    if (x != std::vector<float>{2, 2, 4}) throw std::runtime_error("all_reduce");
    std::vector<int32_t> mine = comm.rank() == 0 ? std::vector<int32_t>{1, 2} : std::vector<int32_t>{3, 4}, all(4);
    comm.all_gather(mine, all);
    if (all != std::vector<int32_t>{1, 2, 3, 4}) throw std::runtime_error("all_gather");
  });
}

// Rank 0 fails, too, since it lost rank 1: what ended rank 1 is what a test wants to read.
TEST(RunInproc, RethrowsWhatARankFailedOfItself) {
  const auto fails = [] {
    run_inproc(2, [](Communicator& comm) {
      if (comm.rank() == 1) throw Error(Code::kBadConfig, "of itself");
      comm.barrier();
    });
  };
  EXPECT_ERROR(fails(), Code::kBadConfig, "of itself");
}

}  // namespace
}  // namespace herd
