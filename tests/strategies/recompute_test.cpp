#include "herd/strategies/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/sample.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;

spec::RunFile recompute_run(int64_t layers, const std::string& recompute, int64_t batch = 2) {
  spec::RunFile run = small_run(layers, recompute, batch);
  run.strategy.bucket = 4096;
  return run;
}

Program step_of(int64_t layers, const std::string& recompute) {
  const spec::RunFile run = recompute_run(layers, recompute);
  return compile_step(run, spec::model_table(run, 1), trainable_layout(run, 2), 0);
}

// "forward 1, recompute 1, .." without releases.
std::string passes(const Program& step) {
  std::string out;
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kForward && op.kind != OpKind::kRecompute && op.kind != OpKind::kBackward) continue;
    out += (out.empty() ? "" : " ") + std::string(1, std::string(op_name(op.kind))[0]) + std::to_string(op.block);
  }
  return out;
}

TEST(Recompute, ComputesEachSegmentAgain_BeforeItIsDifferentiated) {
  EXPECT_EQ(passes(step_of(4, "none")), "f0 f1 f2 f3 f4 b4 b3 b2 b1 b0");
  EXPECT_EQ(passes(step_of(4, "full")), "f0 f1 f2 f3 f4 r4 b4 r3 b3 r2 b2 r1 b1 b0");
  EXPECT_EQ(passes(step_of(4, "sqrt")), "f0 f1 f2 f3 f4 f3 r4 b4 b3 f1 r2 b2 b1 b0");
  EXPECT_EQ(passes(step_of(4, "every:3")), "f0 f1 f2 f3 f4 r4 b4 f1 f2 r3 b3 b2 b1 b0");
  EXPECT_EQ(passes(step_of(4, "every:9")), "f0 f1 f2 f3 f4 f1 f2 f3 r4 b4 b3 b2 b1 b0");
}

TEST(Recompute, Proves_ForManyLayoutsAndSegments) {
  int index = 0;
  for (const char* recompute : {"full", "sqrt", "every:2", "every:3", "every:100", "selective"}) {
    for (const int64_t layers : {1, 2, 5}) {
      for (const int world : {1, 2, 3, 4}) {
        for (const int64_t micro_batches : {1, 3}) {
          for (const bool tied : {false, true}) {
            if (++index % one_in(1, 59) != 0) continue;
            spec::RunFile run = recompute_run(layers, recompute, world * micro_batches);
            run.model.tie_embeddings = tied;
            const auto steps = steps_of(run, world);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
          }
        }
      }
    }
  }
}

TEST(Recompute, KeepsOneInputASegment_AndTheGraphsOfOne) {
  const auto activations = [](const std::string& recompute) {
    spec::RunFile run = recompute_run(16, recompute);
    run.model.width = 256, run.model.heads = 4, run.model.context = 128, run.model.vocab = 512;
    const Program step = compile_step(run, spec::model_table(run, 1), trainable_layout(run, 2), 0);
    const program::Peak peak = in_order_peak(step, Tier::kDevice);
    return peak.by_kind.at(program::ValueKind::kGraph) + peak.by_kind.at(program::ValueKind::kActivation);
  };
  spec::RunFile run = recompute_run(16, "none");
  run.model.width = 256, run.model.heads = 4, run.model.context = 128, run.model.vocab = 512;
  const spec::BlockShape block = spec::model_table(run, 1).blocks[1];
  const int64_t ids = 128 * 8;
  EXPECT_EQ(activations("none"), 16 * block.graph_bytes + block.input_bytes + ids);  // where the loss reads its input
  EXPECT_EQ(activations("full"), 15 * block.input_bytes + block.graph_bytes + ids);
  EXPECT_EQ(activations("sqrt"), 3 * block.input_bytes + 4 * block.graph_bytes + ids);
}

// Each op that the rewrite added or changed, dropped, doubled or of another block: the proof must not go through.
TEST(Recompute, LetsNoMutantThrough) {
  const spec::RunFile run = recompute_run(4, "every:2");
  const auto steps = steps_of(run, 2);
  const program::Expectation expected = expectation_of(run, 2);
  ASSERT_TRUE(verify(steps, expected).empty());
  int mutants = 0;
  for (size_t i = 0; i < steps[0].ops.size(); ++i) {
    const Op& op = steps[0].ops[i];
    if (op.kind != OpKind::kForward && op.kind != OpKind::kRecompute) continue;
    auto dropped = steps;
    dropped[0].ops.erase(dropped[0].ops.begin() + static_cast<long>(i));
    EXPECT_FALSE(verify(dropped, expected).empty()) << "dropped " << describe(steps[0], op);
    auto doubled = steps;
    doubled[0].ops.insert(doubled[0].ops.begin() + static_cast<long>(i), op);
    EXPECT_FALSE(verify(doubled, expected).empty()) << "doubled " << describe(steps[0], op);
    mutants += 2;
    if (op.kind != OpKind::kRecompute) continue;
    for (const int other : {op.block - 1, op.block + 1}) {
      auto moved = steps;
      moved[0].ops[i].block = other;
      EXPECT_FALSE(verify(moved, expected).empty()) << "recompute of block " << other << " for " << op.block;
      ++mutants;
    }
  }
  EXPECT_EQ(mutants, 22);  // 7 forwards and 2 recomputes, twice; recomputes of the neighbours
}

TEST(Recompute, WritesTheGoldenStep) {
  testing_support::expect_golden("tests/strategies/golden/recompute_every2_dp2.txt", to_text(step_of(3, "every:2")));
}

TEST(Recompute, RefusesSegmentsOfNothing) { EXPECT_THROW(Recompute(0, {0, 1, 2}), Error); }

}  // namespace
}  // namespace herd::strategies
