// herd bench: what it writes, what it finds wrong, and every operation and dtype over ranks as threads.
#include "herd/cli/bench.h"

#include <gmock/gmock.h>

#include <array>
#include <mutex>

#include "herd/base/error.h"
#include "herd/cli/bench_operation.h"
#include "herd/cli/bench_pattern.h"
#include "herd/comm/inproc_world.h"

namespace herd::cli {
namespace {

using testing::HasSubstr;

TEST(BenchPattern, CountsEveryElementThatDiffers) {
  BenchPattern pattern(DType::kF32, ReduceOp::kSum, 3);
  std::vector<float> x(10000);
  auto* bytes = reinterpret_cast<std::byte*>(x.data());
  pattern.fill(bytes, 1234, 10000, 2, 7);
  EXPECT_EQ(pattern.wrong_input(bytes, 1234, 10000, 2, 7), 0);
  x[0] += 1, x[9999] += 1;
  EXPECT_EQ(pattern.wrong_input(bytes, 1234, 10000, 2, 7), 2);
}

TEST(BenchPattern, DiffersBetweenRanksRepetitionsAndPlaces) {
  BenchPattern pattern(DType::kI32, ReduceOp::kSum, 4);
  std::vector<int32_t> x(4096);
  auto* bytes = reinterpret_cast<std::byte*>(x.data());
  pattern.fill(bytes, 0, 4096, 1, 0);
  EXPECT_GT(pattern.wrong_input(bytes, 0, 4096, 0, 0), 2000);
  EXPECT_GT(pattern.wrong_input(bytes, 0, 4096, 1, 1), 2000);
  for (int64_t shift = 1; shift <= 4096; shift *= 2) EXPECT_GT(pattern.wrong_input(bytes, shift, 4096, 1, 0), 2000);
}

TEST(BenchPattern, ExpectsWhatAdditionGives) {
  BenchPattern pattern(DType::kI64, ReduceOp::kSum, 3);
  std::array<std::vector<int64_t>, 3> inputs;
  std::vector<int64_t> sum(9000, 0);
  for (Rank rank = 0; rank < 3; ++rank) {
    auto& input = inputs[static_cast<size_t>(rank)];
    input.resize(9000);
    pattern.fill(reinterpret_cast<std::byte*>(input.data()), 77, 9000, rank, 5);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
  }
  EXPECT_EQ(pattern.wrong_result(reinterpret_cast<std::byte*>(sum.data()), 77, 9000, 5), 0);
  ++sum[4321];
  EXPECT_EQ(pattern.wrong_result(reinterpret_cast<std::byte*>(sum.data()), 77, 9000, 5), 1);
}

class BenchEveryOperation : public testing::TestWithParam<DType> {};

TEST_P(BenchEveryOperation, FindsNothingWrong) {
  run_inproc(3, [](Communicator& comm) {
    BenchCall call{.op = "", .algorithm = "", .dtype = GetParam()};
    call.reduce = GetParam() == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum;
    for (const std::string_view op : bench_kinds()) {
      call.op = op;
      call.bytes = whole_elements(op, 1003 * size_of(GetParam()), GetParam(), 3) * size_of(GetParam());
      for (const bool symmetric : {false, true}) {
        call.symmetric = symmetric;
        BenchOperation one(comm, call);
        for (int repetition = 0; repetition < 2; ++repetition) {
          one.rewrite(repetition);
          comm.barrier();
          one.run();
          EXPECT_EQ(one.wrong(repetition), 0) << op;
          comm.barrier();
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DTypes, BenchEveryOperation, testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST(Bench, ReportsRatesOfNcclTestsDefinition) {
  run_inproc(2, [](Communicator& comm) {
    const BenchResult r = bench(comm, {.op = "all_gather", .dtype = "bf16", .seconds = 0.01}, 4097);
    EXPECT_EQ(r.bytes, 4096);
    EXPECT_EQ(r.count, 2048);
    EXPECT_EQ(r.redop, "none");
    EXPECT_EQ(r.wrong, 0);
    EXPECT_DOUBLE_EQ(r.algbw_GBps, 4096 / r.us_median / 1e3);
    EXPECT_DOUBLE_EQ(r.busbw_GBps, r.algbw_GBps / 2);
    EXPECT_GT(r.bound_GBps, 0);
    EXPECT_GT(r.predicted_us, 0);
  });
}

TEST(Bench, NamesTheRuleOfABadRequest) {
  const auto refusal = [](BenchOptions options) -> std::string {
    try {
      options.transport = "inproc";
      run_bench(options);
    } catch (const Error& error) {
      return error.what();
    }
    return "took it";
  };
  EXPECT_THAT(refusal({.op = "all_redoce"}), HasSubstr("no operation \"all_redoce\" to bench; valid: all_reduce"));
  EXPECT_THAT(refusal({.dtype = "fp31"}), HasSubstr("fp31"));
  EXPECT_THAT(refusal({.redop = "product"}), HasSubstr("sum, min or max, not \"product\""));
  EXPECT_THAT(refusal({.ranks = 100, .dtype = "bf16"}), HasSubstr("up to 85 ranks, but there are 100"));
}

}  // namespace
}  // namespace herd::cli
