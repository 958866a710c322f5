#include <gtest/gtest.h>

#include "herd/comm/inproc_world.h"
#include "tests/comm/collective_check.h"

namespace herd {
namespace {

using namespace testing_support;

class CollectivesInproc : public testing::TestWithParam<int> {};

TEST_P(CollectivesInproc, GiveExactlyTheDefinition_ByEveryAlgorithm) {
  const int n = GetParam();
  run_inproc(n, [&](Communicator& comm) { check_everything(comm, {0, 1, n - 1, n, n + 1, 1000, 9001}); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesInproc, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17));

TEST(CollectivesInprocTypes, ReduceEveryDTypeByEveryOpThatItHas) {
  run_inproc(3, [](Communicator& comm) {
    for (DType dtype : kAllDTypes) {
      for (ReduceOp op : kAllReduceOps) {
        if (!supports(op, dtype)) continue;
        if (op == ReduceOp::kAverage) continue;
        for (const char* name : {"ring", "staged", "direct_push"}) {
          check_all_reduce(comm, 101, {name, name[0] == 'd', dtype, op});
        }
      }
    }
  });
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

}  // namespace
}  // namespace herd
