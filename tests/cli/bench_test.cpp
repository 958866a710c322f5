// herd bench: what it writes, what it finds wrong, and every operation and dtype over ranks as threads.
#include "herd/cli/bench.h"

#include <gmock/gmock.h>

#include <array>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/cli/bench_operation.h"
#include "herd/cli/bench_pattern.h"
#include "herd/collectives/choose.h"
#include "herd/comm/inproc_world.h"
#include "herd/kernels/reduce_kernel.h"
#include "herd/topology/topology_text.h"
#include "tests/support/sample.h"

namespace herd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns the seconds that repetitions take where the first `quick` of them take 100 us, and the others 10 ms.
double seconds_spent(int quick, double seconds, int& repetitions) {
  const auto spent_us = [&](int from, int to) {
    double us = 0;
    for (int i = from; i < to; ++i) us += i < quick ? 100 : 10'000;
    return us;
  };
  int count = kWarmUps;
  MoreRepetitions more = more_repetitions(count, spent_us(0, count), seconds, true);
  while (more.count > 0) {
    count += more.count;
    more = more_repetitions(count - kWarmUps, spent_us(kWarmUps, count), seconds, false);
  }
  repetitions = count - kWarmUps;
  return spent_us(0, count) / 1e6;
}

TEST(BenchRepetitions, TakeAboutTheSecondsThatAreAsked_WhereTheLinkLetsABurstPass) {
  int repetitions = 0;
  EXPECT_NEAR(seconds_spent(0, 1, repetitions), 1, 0.15);
  EXPECT_NEAR(repetitions, 95, 10);
  EXPECT_NEAR(seconds_spent(8, 1, repetitions), 1, 0.15);
  EXPECT_LT(seconds_spent(40, 1, repetitions), 4);
  EXPECT_NEAR(seconds_spent(1 << 20, 1, repetitions), 1, 0.15);
  EXPECT_NEAR(repetitions, 9500, 1000);
}

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

TEST(BenchPattern, TellsTheOpsApart) {
  int index = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI32}) {
    for (const ReduceOp op : kReduceOps) {
      for (const ReduceOp other : kReduceOps) {
        if (!supports(op, dtype) || !supports(other, dtype) || ++index % one_in(1, 5) != 0) continue;
        // What a pattern takes for right is what ranks that reduce by `other` end with.
        run_inproc(3, [&](Communicator& comm) {
          BenchCall call{.op = "all_reduce", .algorithm = "", .dtype = dtype, .reduce = other, .bytes = 4096};
          BenchOperation one(comm, call);
          one.rewrite(0);
          one.run();
          EXPECT_EQ(one.wrong(0), 0);
          BenchPattern pattern(dtype, op, 3);
          const int64_t wrong = pattern.wrong_result(one.result().data(), 0, 4096 / size_of(dtype), 0);
          EXPECT_EQ(wrong == 0, op == other) << reduce_op_name(op) << " for " << reduce_op_name(other);
        });
      }
    }
  }
}

TEST(BenchPattern, GivesProductsOnesAndTwos) {
  BenchPattern pattern(DType::kI32, ReduceOp::kProduct, 2);
  std::vector<int32_t> x(512);
  pattern.fill(reinterpret_cast<std::byte*>(x.data()), 0, 512, 1, 0);
  for (const int32_t one : x) EXPECT_TRUE(one == 1 || one == 2) << one;
}

TEST(BenchPattern, HoldsTheResultsOfItsMostRanks) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kReduceOps) {
      if (!supports(op, dtype)) continue;
      const int ranks = std::min(BenchPattern::max_ranks(op, dtype), 100);
      std::vector<int64_t> x(512);  // the inputs, added or multiplied here as the dtype does it
      BenchPattern pattern(dtype, op, ranks);
      std::vector<std::byte> input(512 * 8), result;
      for (Rank rank = 0; rank < ranks; ++rank) {
        pattern.fill(input.data(), 0, 512, rank, 0);
        const std::span<std::byte> given(input.data(), static_cast<size_t>(512 * size_of(dtype)));
        if (rank == 0) {
          result.assign(given.begin(), given.end());
          if (BenchPattern::factor(op, 0) == 1) continue;
        }
        const double factor = BenchPattern::factor(op, rank);
        void* const scaled[] = {given.data()};
        const void* const one[] = {given.data()};
        if (factor != 1) kernels::reduce(scaled, one, 512, dtype, ReduceOp::kSum, factor);
        void* const target[] = {result.data()};
        const void* const both[] = {result.data(), given.data()};
        const bool last = op == ReduceOp::kAverage && rank == ranks - 1;
        kernels::reduce(target, both, 512, dtype, op, last ? 1.0 / ranks : 1.0);
      }
      EXPECT_EQ(pattern.wrong_result(result.data(), 0, 512, 0), 0)
          << reduce_op_name(op) << " " << dtype_name(dtype) << " " << ranks;
    }
  }
}

TEST(Bench, PredictsOnHostsOfOneRankAndOfSeveral) {
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1}, {0, 1, 1, 1}}) {
    for (const char* op : {"all_reduce", "gather", "broadcast", "reduce"}) {
      run_inproc(
          static_cast<int>(hosts.size()),
          [&](Communicator& comm) {
            const BenchResult result = bench(comm, {.op = op, .seconds = 0.01}, 256 << 10);
            EXPECT_EQ(result.wrong, 0);
            EXPECT_GT(result.predicted_us, 0);
          },
          hosts);
    }
  }
}

TEST(Bench, TakesNothingAndALoneRank) {
  for (const int ranks : {1, 2}) {
    run_inproc(ranks, [](Communicator& comm) {
      for (const char* op : {"all_reduce", "broadcast", "all_gather"}) {
        EXPECT_EQ(bench(comm, {.op = op, .seconds = 0.01}, 0).wrong, 0) << op;
        EXPECT_EQ(bench(comm, {.op = op, .seconds = 0.01}, 8 << 10).wrong, 0) << op;
      }
    });
  }
}

// Nothing is measured for the prediction: it is what the job chooses on, so the choice is the fastest predicted.
TEST(Bench, PredictsFromWhatTheJobMeasuredWhenItBegan) {
  for (const std::vector<int>& hosts : {std::vector<int>{}, std::vector{0, 1, 0, 1}}) {
    run_inproc(
        4,
        [](Communicator& comm) {
          const BenchResult result = bench(comm, {.op = "all_reduce", .seconds = 0.01}, 64 << 10);
          BenchOperation one(comm, {.op = "all_reduce", .bytes = 64 << 10});
          const Choice choice = choose(one.request(), parse_topology(comm.topology()));
          EXPECT_EQ(result.algorithm, choice.algorithm);
          EXPECT_EQ(result.predicted_us, choice.candidates[0].us);
        },
        hosts);
  }
}

TEST(Bench, PredictsReductionsOfTypesThatHoldFewNumbers) {
  run_inproc(3, [](Communicator& comm) {
    const std::vector<BenchOptions> asked = {{.op = "reduce", .dtype = "bf16", .redop = "premultiplied_sum"},
                                             {.op = "reduce_scatter", .dtype = "bool", .redop = "or"}};
    for (BenchOptions options : asked) {
      options.seconds = 0.01;
      const BenchResult result = bench(comm, options, 48 << 10);
      EXPECT_EQ(result.wrong, 0) << options.op;
      EXPECT_GT(result.predicted_us, 0) << options.op;
    }
  });
}

class BenchEveryOperation : public testing::TestWithParam<DType> {};

TEST_P(BenchEveryOperation, FindsNothingWrong) {
  run_inproc(3, [](Communicator& comm) {
    BenchCall call{.op = "", .algorithm = "", .dtype = GetParam()};
    const auto expect_right = [&] {
      BenchOperation one(comm, call);
      for (int repetition = 0; repetition < 2; ++repetition) {
        one.rewrite(repetition);
        if (call.op == "all_gather" && call.in_place) {
          const int64_t size = size_of(call.dtype);
          const Range mine = part_of(call.bytes / size, 3, comm.rank());
          const std::byte* place = one.result().data() + mine.begin * size;
          const BenchPattern pattern(call.dtype, call.reduce, 3);
          EXPECT_EQ(pattern.wrong_input(place, mine.begin, mine.size(), comm.rank(), repetition), 0);
        }
        comm.barrier();
        one.run();
        EXPECT_EQ(one.wrong(repetition), 0) << call.op << " " << reduce_op_name(call.reduce) << " " << call.in_place;
        comm.barrier();
      }
      if (call.op == "send") return;
      const CollectiveRequest request = one.request();
      EXPECT_EQ(request.root, bench_kind(call.op).rooted ? call.root : 0);
      EXPECT_EQ(request.segment_bytes, call.segment_bytes);
      if (bench_kind(call.op).in_place == InPlace::kAsAsked) {
        EXPECT_EQ(request.in_place, call.in_place);
      }
    };
    int index = static_cast<int>(GetParam());  // another slice of each dtype
    for (const std::string_view op : bench_kinds()) {
      call.op = op;
      call.bytes = whole_elements(op, 1003 * size_of(GetParam()), GetParam(), 3) * size_of(GetParam());
      for (const ReduceOp reduce : kReduceOps) {
        if (!bench_kind(op).reduces && reduce != ReduceOp::kSum) continue;
        if (bench_kind(op).reduces && !supports(reduce, GetParam())) continue;
        if (++index % one_in(1, 3) != 0) continue;
        call.reduce = supports(reduce, GetParam()) ? reduce : ReduceOp::kMax;
        for (const bool other : {false, true}) {
          call.symmetric = call.in_place = other;
          call.root = other ? 2 : 0;
          call.segment_bytes = other ? 256 : 0;
          expect_right();
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DTypes, BenchEveryOperation, testing::ValuesIn(kAllDTypes),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

TEST(Bench, TimesFromTheFirstBeginToTheLastEnd_OrWithoutOneClockTheSlowestRank) {
  constexpr int64_t kYear = 31'536'000'000'000'000;
  const std::vector<Span> spans[] = {{{kYear, kYear + 1000}, {kYear + 10'000, kYear + 17'000}},
                                     {{kYear + 3000, kYear + 8001}, {kYear + 11'000, kYear + 14'000}},
                                     {{}, {}}};  // it takes no part
  run_inproc(3, [&](Communicator& comm) {
    const std::vector<Span>& own = spans[comm.rank()];
    EXPECT_THAT(times_of_all(comm, true, own), testing::ElementsAre(testing::DoubleEq(8.001), testing::DoubleEq(7)));
    EXPECT_THAT(times_of_all(comm, false, own), testing::ElementsAre(testing::DoubleEq(5.001), testing::DoubleEq(7)));
  });
}

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
  EXPECT_THAT(refusal({.redop = "prodoct"}), HasSubstr("no reduce op \"prodoct\"; valid: sum, product"));
  EXPECT_THAT(refusal({.redop = "xor"}), HasSubstr("\"xor\" is not defined for fp32"));
  EXPECT_THAT(refusal({.ranks = 100, .dtype = "bf16"}), HasSubstr("a sum exactly up to 85 ranks, but there are 100"));
  EXPECT_THAT(refusal({.ranks = 7, .dtype = "int8", .redop = "product"}), HasSubstr("up to 6 ranks, but there are 7"));
  EXPECT_THAT(refusal({.ranks = 43, .dtype = "bf16", .redop = "premultiplied_sum"}), HasSubstr("up to 42 ranks"));
  EXPECT_THAT(
      refusal({.bytes = {4096, 8'000'000'000'000'000'000}}),
      AllOf(HasSubstr("each of 2 ranks holds a message of --bytes 7"), HasSubstr("of memory left\n  fix: --bytes ")));
  EXPECT_THAT(refusal({.root = 2}), HasSubstr("--root is a rank from 0 to 1, but it is 2"));
  for (const char* op : {"all_gather", "send"})
    EXPECT_THAT(refusal({.op = op, .segment_bytes = 64}),
                HasSubstr("no " + std::string(op) + " has\n  fix: leave it out"));
  EXPECT_THAT(refusal({.op = "gather", .in_place = true}), HasSubstr("fix: leave out --in-place"));
  EXPECT_THAT(refusal({.bytes = {4, 1}}), HasSubstr("1 x 4 B of fp32, but --bytes is 1\n  fix: --bytes 4"));
  EXPECT_THAT(refusal({.op = "scatter", .ranks = 3, .bytes = {8}}),
              HasSubstr("3 x 4 B of fp32, an element for each rank, but --bytes is 8\n  fix: --bytes 12"));
}

}  // namespace
}  // namespace herd::cli
