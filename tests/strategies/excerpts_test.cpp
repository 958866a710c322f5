// Parts of a step's program: the losses alone prove, and no op of them can be left out; passes over blocks hold what
// they need.
#include "herd/program/excerpts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/program/program_names.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;

std::vector<spec::RunFile> runs() {
  std::vector<spec::RunFile> out;
  for (const int zero : {0, 1, 2, 3}) {
    for (const char* recompute : {"none", "full", "every:2"}) {
      out.push_back(small_run(3, recompute, 6));
      out.back().strategy.zero = zero;
    }
  }
  out.back().strategy.keep_whole = 2;
  return out;
}

TEST(ForwardOnly, HoldsTheLossesAndNothingElse_AndNoOpOfItCanBeLeftOut) {
  for (const spec::RunFile& run : runs()) {
    std::vector<Program> forward;
    for (const Program& step : steps_of(run, 2)) forward.push_back(program::forward_only(step));
    program::Expectation expected = expectation_of(run, 2);
    expected.trains = false;
    EXPECT_EQ(first_finding(forward, expected), "");
    for (size_t i = 0; i < forward[0].ops.size(); ++i) {
      const Op& op = forward[0].ops[i];
      EXPECT_THAT((std::vector{OpKind::kLoad, OpKind::kForward, OpKind::kLoss, OpKind::kAllGather, OpKind::kRelease}),
                  testing::Contains(op.kind))
          << describe(forward[0], op);
      if (i % static_cast<size_t>(one_in(1, 5)) != 0) continue;
      std::vector<Program> without = forward;
      for (Program& one : without) one.ops.erase(one.ops.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_NE(first_finding(without, expected), "") << "without " << describe(forward[0], op);
    }
  }
}

TEST(PassesOver, TakeWhatOtherBlocksWouldHaveGivenFromNobody) {
  for (const spec::RunFile& run : runs()) {
    const Program step = steps_of(run, 2)[0];
    const Program passes = program::passes_over(step, {0, 2, 4});
    int received = 0;
    std::set<program::Value> written;
    for (const auto& [value, info] : passes.values)
      if (info.persistent) written.insert(value);
    for (const Op& op : passes.ops) {
      if (op.kind == OpKind::kReceive) ++received;
      if (op.block >= 0) {
        EXPECT_THAT((std::vector{0, 2, 4}), testing::Contains(op.block));
      }
      for (const program::Value& value : op.reads)
        EXPECT_TRUE(written.contains(value)) << describe(passes, op) << " reads " << value_name(passes.mesh, value);
      written.insert(op.writes.begin(), op.writes.end());
    }
    // Where a recompute writes one of these again, the step does not hold it until then.
    EXPECT_EQ(received, run.strategy.recompute == "every:2" ? 5 : 4) << "x2, x4, dx3 and dx1";
    for (const auto& [value, info] : passes.values) EXPECT_EQ(info, step.values.at(value));
  }
}

}  // namespace
}  // namespace herd::strategies
