// Blocks that read their weights on the host: steps prove with everything else, the device has nothing of these
// weights, a read takes as long as its bytes over the link, and no other block may do so.
#include "herd/strategies/direct_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "herd/program/memory_bound.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "herd/program/simulate.h"
#include "tests/golden.h"
#include "tests/strategies/op_mutants.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

spec::RunFile direct_run(const std::string& blocks, bool tied = false, int dp = 1) {
  spec::RunFile run = small_run(4, "none", 2 * dp, tied);
  run.strategy.offload = "window";
  run.strategy.direct_host = blocks;
  run.strategy.bucket = 4096;
  return run;
}

TEST(DirectHost, Proves_WithEveryTechnique) {
  int index = 0;
  for (const int dp : {1, 2}) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const char* precision : {"fp32", "bf16", "fp16"}) {
          for (const char* recompute : {"none", "full", "every:2"}) {
            for (const char* blocks : {"embedding", "head*", "embedding h.0* h.3*", "*"}) {
              for (const char* order : {"micro_batch_major", "layer_major"}) {
                if (++index % one_in(19, 131) != 0) continue;
                spec::RunFile run = direct_run(blocks, index % 2 == 0, dp);
                if (index % 3 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
                run.mesh.pp = pp, run.mesh.tp = tp;
                run.strategy.precision = precision, run.strategy.recompute = recompute;
                if (pp == 1) run.strategy.order = order;
                const auto steps = steps_of(run, dp * pp * tp);
                EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
              }
            }
          }
        }
      }
    }
  }
}

// A layer that ranks share is several blocks, which go by its name together.
TEST(DirectHost, ReadsAllBlocksOfALayerThatIsNamed) {
  for (const int tp : {1, 2}) {
    spec::RunFile run = direct_run("h.0");
    run.model.layers = 12, run.mesh.tp = tp;
    const spec::ModelTable model = spec::program_table(run, 1);
    const auto blocks_of = [&](const char* names) {
      run.strategy.direct_host = names;
      return direct_blocks(run, model);
    };
    EXPECT_EQ(blocks_of("h.1").size(), tp == 1 ? 1U : 6U);
    EXPECT_EQ(blocks_of("h.1"), blocks_of(tp == 1 ? "h.1" : "h.1.*"));
  }
}

TEST(DirectHost, IsReadByPeople) {
  spec::RunFile run = direct_run("embedding h.0");
  run.model.layers = 2, run.train.batch = 1;
  testing_support::expect_golden("tests/strategies/golden/direct_host.txt", to_text(steps_of(run, 1)[0]));
}

// Which groups have weights on the device.
std::set<int> groups_on_device(const Program& step) {
  std::set<int> out;
  for (const auto& [value, info] : step.values) {
    if (value.kind == ValueKind::kWeight && value.tier == Tier::kDevice) out.insert(value.index);
  }
  return out;
}

TEST(DirectHost, LeavesNothingOfItsBlocksWeightsOnTheDevice) {
  const Program fetched = steps_of(direct_run("none"), 1)[0], direct = steps_of(direct_run("embedding h.3"), 1)[0];
  EXPECT_EQ(groups_on_device(fetched), (std::set<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(groups_on_device(direct), (std::set<int>{1, 2, 3, 5}));
  for (const Op& op : direct.ops) {
    EXPECT_TRUE(op.kind != OpKind::kFetch || (op.writes[0].index != 0 && op.writes[0].index != 4));
  }
  EXPECT_LT(peak_bound(direct, Tier::kDevice).bytes, peak_bound(fetched, Tier::kDevice).bytes);
  EXPECT_EQ(peak_bound(direct, Tier::kHost).bytes, peak_bound(fetched, Tier::kHost).bytes);
}

// The head needs all of a tied embedding, whose rows the first block reads on the host.
TEST(DirectHost, FetchesAGroupForItsOtherBlock) {
  const Program step = steps_of(direct_run("embedding", true), 1)[0];
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kForward && op.kind != OpKind::kLoss) continue;
    for (const Value& value : op.reads) {
      if (value.kind != ValueKind::kWeight) continue;
      EXPECT_EQ(value.tier, op.block == 0 ? Tier::kHost : Tier::kDevice) << describe(step, op);
    }
  }
  EXPECT_TRUE(groups_on_device(step).contains(0));
  EXPECT_FALSE(groups_on_device(step).contains(1)) << "positions";
}

TEST(DirectHost, ReadsTheRowsOfTokens_AndAllWeightsOfALayer) {
  spec::RunFile run = direct_run("embedding h.0");
  run.model.vocab = 1000;
  const spec::ModelTable model = spec::program_table(run, 1);
  const Program step = steps_of(run, 1)[0];
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kForward || op.block > 2) continue;
    const int64_t tokens = run.model.context, rows = 2 * tokens;  // of words and of positions
    const int64_t bytes = op.block == 0 ? 4 * rows * run.model.width : op.block == 1 ? 4 * model.group_elements(1) : 0;
    EXPECT_EQ(direct_bytes(step, op, model.blocks[static_cast<size_t>(op.block)]), bytes);
  }
}

TEST(DirectHost, TakesAsLongAsItsBytesOverTheLink) {
  const spec::RunFile run = direct_run("h.0");
  const spec::ModelTable model = spec::program_table(run, 1);
  const double bytes = 4.0 * static_cast<double>(model.group_elements(1));
  for (const bool own_device : {true, false}) {
    program::Calibration machine;
    (own_device ? machine.host_link_bytes_per_us : machine.emulated_link_bytes_per_us) = bytes / 500;
    machine.measured_us[{OpKind::kForward, 1}] = 100;
    machine.measured_us[{OpKind::kBackward, 1}] = 800;
    const auto simulation = simulate(steps_of(run, 1), model, machine, program::SharedMemoryCost(machine));
    for (const sim::Span& span : simulation.timeline.spans) {
      const double us = span.end_us - span.start_us;
      EXPECT_TRUE(span.name != "forward block1 mb0" || std::abs(us - 500) < 1e-6) << us;
      EXPECT_TRUE(span.name != "backward block1 mb0" || us >= 800) << us;
    }
  }
}

// What is the same but for what the run names: a pass over any other block may not read what is not on the device.
TEST(DirectHost, ReadsOfBlocksThatTheRunDoesNotNameAreFound) {
  const spec::RunFile run = direct_run("embedding h.0 head", false, 2);
  const auto steps = steps_of(run, 2);
  ASSERT_EQ(first_finding(steps, expectation_of(run, 2)), "");
  for (const char* fewer : {"none", "h.0 head", "embedding head", "embedding h.0"}) {
    EXPECT_THAT(first_finding(steps, expectation_of(direct_run(fewer, false, 2), 2)),
                testing::AllOf(testing::HasSubstr("needs whole weights, not w"), testing::HasSubstr(".host")))
        << fewer;
  }
}

TEST(DirectHost, MutantsAreFound) {
  const spec::RunFile run = direct_run("embedding h.0 head", false, 2);
  const auto steps = steps_of(run, 2);
  const program::Expectation expected = expectation_of(run, 2);
  const auto host_read = [](Op& op) {
    return std::ranges::find_if(
        op.reads, [](const Value& value) { return value.kind == ValueKind::kWeight && value.tier == Tier::kHost; });
  };
  OpMutants mutants(steps, expected, [](const Op& op) { return program::is_pass(op); });
  mutants.expect_found("read left out", [&](std::vector<Op>& ops, size_t i) {
    const auto read = host_read(ops[i]);
    if (read == ops[i].reads.end()) return false;
    ops[i].reads.erase(read);
    return true;
  });
  mutants.expect_found("read of another group", [&](std::vector<Op>& ops, size_t i) {
    const auto read = host_read(ops[i]);
    if (read == ops[i].reads.end()) return false;
    read->index = read->index == 0 ? 1 : 0;
    return true;
  });
  mutants.expect_found("read on the host of another block", [&](std::vector<Op>& ops, size_t i) {
    const auto read =
        std::ranges::find_if(ops[i].reads, [](const Value& value) { return value == program::weight(value.index); });
    if (read == ops[i].reads.end()) return false;
    *read = in_tier(*read, Tier::kHost);
    return true;
  });
  EXPECT_GT(mutants.count(), 10);
}

TEST(DirectHost, IsRefusedWithoutAWindow_AndForNamesOfNoBlock) {
  EXPECT_ERROR(spec::parse_run_text("[strategy]\noffload = \"states\"\ndirect_host = \"embedding\"\n", "test"),
               Code::kBadConfig, "strategy.direct_host = \"embedding\" reads weights", "fix: ", "offload = \"window\"");
  EXPECT_ERROR(steps_of(direct_run("embeding"), 1), Code::kBadConfig, "\"embeding\" names no block of the model",
               "fix: ", "\"embedding\"");
}

}  // namespace
}  // namespace herd::strategies
