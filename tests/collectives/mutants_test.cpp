#include <gtest/gtest.h>

#include "herd/schedule/verify_schedule.h"
#include "tests/collectives/all_algorithms.h"
#include "tests/schedule/interpreter.h"
#include "tests/schedule/mutate.h"

namespace herd::testing_support {
namespace {

// The first of `runs` random interleavings that is not right, half of them with buffered sends; else a right one.
RunResult interpret_often(std::span<const Schedule> all, int runs) {
  for (int i = 0; i < runs; ++i) {
    const RunResult result = interpret(all, {.seed = static_cast<uint64_t>(i) + 1, .buffered = i % 2 == 0});
    if (result.verdict != Verdict::kRight) return result;
  }
  return {};
}

// Counts that give every rank something, and staged algorithms several pieces.
std::vector<CollectiveRequest> requests_of(const AlgorithmInfo& info) {
  std::vector<CollectiveRequest> requests = small_requests(info, DType::kF32, full_tests());
  for (const CollectiveRequest& request : requests_of_several_pieces(info)) requests.push_back(request);
  return requests;
}

TEST(Interpreter, FindsEveryScheduleRightInAnyInterleaving) {
  for (const AlgorithmInfo& info : every_algorithm()) {
    for (const CollectiveRequest& request : requests_of(info)) {
      const RunResult result = interpret_often(build_all_ranks(info.name, request), request.elements > 1000 ? 4 : 20);
      EXPECT_EQ(result.verdict, Verdict::kRight) << title(info, request) << ": " << result.why;
    }
  }
}

class Mutants : public testing::TestWithParam<AlgorithmInfo> {};

TEST_P(Mutants, ThatDoWrongOrHangAreFindings) {
  int found = 0, harmless = 0, seen_wrong = 0, sampled = 0;
  for (const CollectiveRequest& request : requests_of(GetParam())) {
    const std::vector<Schedule> right = build_all_ranks(GetParam().name, request);
    const bool lengthy = request.elements > 1000;
    for (const Mutation& mutation : all_mutations(right)) {
      const std::vector<Schedule> wrong = mutated(right, mutation);
      if (!verify(wrong).empty()) {
        if (++found % 17 == 0 && !lengthy) {  // a prime: not the same kind of mutation for every step
          ++sampled;
          seen_wrong += interpret_often(wrong, 20).verdict != Verdict::kRight;
        }
        continue;
      }
      ++harmless;
      if (lengthy && harmless % 8 != 0 && !full_tests()) continue;
      const RunResult result = interpret_often(wrong, lengthy ? 4 : 20);
      EXPECT_EQ(result.verdict, Verdict::kRight)
          << title(GetParam(), request) << "\n  " << describe(right, mutation) << "\n  " << result.why;
    }
  }
  RecordProperty("found", found);
  RecordProperty("harmless", harmless);
  RecordProperty("of_sampled_findings", sampled);
  RecordProperty("seen_wrong_in_a_run", seen_wrong);
  EXPECT_GT(found, harmless) << "the verifier lets too much pass";
  EXPECT_GE(3 * seen_wrong, sampled) << "the verifier cries wolf";
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, testing::ValuesIn(every_algorithm()), [](const auto& one) {
  return std::string(collective_name(one.param.collective)) + "_" + std::string(one.param.name);
});

}  // namespace
}  // namespace herd::testing_support
