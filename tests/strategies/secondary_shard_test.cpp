// Secondary shards of weights as a rewrite: it proves beside every other technique, no gather after the first of a
// group leaves its host, and mutants of it are found.
#include "herd/strategies/secondary_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "herd/program/collective_message.h"
#include "herd/program/excerpts.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "op_mutants.h"
#include "tests/golden.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

spec::RunFile run_on_hosts(int ranks, int per_host, bool secondary = true) {
  spec::RunFile run = small_run(2, "none", 2 * ranks, true);
  run.strategy.zero = 3;
  run.strategy.keep_whole = 0;
  run.strategy.secondary_shard = secondary;
  run.mesh.ranks_per_host = per_host;
  return run;
}

bool gathers_a_weight(const Op& op) {
  return op.kind == OpKind::kAllGather && op.writes.at(0).kind == ValueKind::kWeight;
}

TEST(SecondaryShard, Proves_WithEveryTechnique) {
  int index = 0;
  for (const auto& [ranks, per_host, dp] : {std::tuple{4, 2, 1}, {6, 2, 1}, {6, 3, 1}, {8, 2, 2}}) {
    for (const int pp : {1, 2}) {
      for (const int tp : {1, 2}) {
        for (const char* codec : {"none", "int8"}) {
          for (const char* recompute : {"none", "full"}) {
            if (++index % one_in(5, 17) != 0 || (dp == 2 && tp * pp > 1)) continue;
            spec::RunFile run = run_on_hosts(ranks, per_host * tp);
            if (dp == 2) run.mesh.fsdp = ranks / dp;
            run.mesh.pp = pp, run.mesh.tp = tp;
            run.strategy.gather_codec = codec;
            run.strategy.recompute = recompute;
            run.strategy.sequence_parallel = tp == 2 && pp == 1;
            run.strategy.precision = index % 2 == 0 ? "fp32" : "bf16";
            run.strategy.keep_whole = index % 3;
            run.strategy.offload = index % 4 == 0 ? "states" : "none";
            const auto steps = steps_of(run, ranks * pp * tp);
            EXPECT_EQ(program::parse_program(to_text(steps.back())), steps.back());
          }
        }
      }
    }
  }
  spec::RunFile frozen = run_on_hosts(4, 2);
  frozen.model.frozen = "h.1.*";
  steps_of(frozen, 4);
}

TEST(SecondaryShard, IsReadByPeople) {
  testing_support::expect_golden("tests/strategies/golden/secondary_shard_dp4.txt",
                                 to_text(steps_of(run_on_hosts(4, 2), 4)[0]));
}

// Each group goes between hosts once a step, and all other gathers stay inside.
TEST(SecondaryShard, GathersBetweenHostsOnce_HoweverManyPassesThereAre) {
  for (const char* codec : {"none", "int8"}) {
    for (const int hosts : {2, 3}) {
      spec::RunFile run = run_on_hosts(2 * hosts, 2), flat_run = run_on_hosts(2 * hosts, 2, false);
      run.strategy.gather_codec = flat_run.strategy.gather_codec = codec;
      const auto steps = steps_of(run, 2 * hosts), flat = steps_of(flat_run, 2 * hosts);
      const Program& step = steps[0];
      std::map<int, int> between, inside, expected;
      std::map<int, int64_t> bytes;
      for (const Op& op : flat[0].ops) {
        if (!gathers_a_weight(op)) continue;
        ++expected[op.writes[0].index];
        bytes[op.writes[0].index] = message_bytes(flat[0], op);
      }
      for (const Op& op : step.ops) {
        if (!gathers_a_weight(op)) continue;
        const int group = op.writes[0].index;
        const bool in_host = op.axis == step.mesh.find("local");
        ++(in_host ? inside : between)[group];
        EXPECT_EQ(message_bytes(step, op), in_host ? bytes.at(group) : bytes.at(group) / 2);
      }
      EXPECT_EQ(inside, expected);
      const auto first_backward = std::ranges::find(step.ops, OpKind::kBackward, &Op::kind);
      EXPECT_TRUE(std::none_of(first_backward, step.ops.end(), [&](const Op& op) {
        return gathers_a_weight(op) && op.axis != step.mesh.find("local");
      })) << "backward leaves its host";
      for (const auto& [group, times] : between) EXPECT_EQ(times, 1) << group;
      EXPECT_EQ(between.size(), expected.size());
    }
  }
}

TEST(SecondaryShard, HoldsAShardOfTheHostBetweenItsPasses) {
  const Program step = steps_of(run_on_hosts(6, 2), 6)[0];
  const int local = step.mesh.find("local");
  int shards = 0, wholes = 0;
  for (const auto& [value, info] : step.values) {
    wholes += value.kind == ValueKind::kWeight && value.placement.is_whole();
    if (value.kind != ValueKind::kWeight || !value.placement.is_shard(local)) continue;
    ++shards;
    EXPECT_EQ(2 * info.bytes, step.values.at(program::weight(value.index)).bytes);
    EXPECT_FALSE(info.persistent || info.pooled);
    EXPECT_GE(info.slot, 0);
  }
  EXPECT_EQ(shards, wholes);
  EXPECT_GT(shards, 2);
}

TEST(SecondaryShard, LeavesTheStepAsItIs_WhereAllRanksAreOnOneHostOrNoneShareOne) {
  for (const int per_host : {0, 1, 4, 8}) {
    EXPECT_EQ(steps_of(run_on_hosts(4, per_host), 4), steps_of(run_on_hosts(4, per_host, false), 4)) << per_host;
  }
}

TEST(SecondaryShard, RefusesWhatItDoesNotShare) {
  spec::RunFile run = run_on_hosts(4, 2);
  run.strategy.zero = 2;
  EXPECT_ERROR(steps_of(run, 4), Code::kBadConfig,
               "strategy.zero = 2 keeps them whole\n  fix: strategy.secondary_shard = false");
  EXPECT_ERROR(steps_of(run_on_hosts(6, 4), 6), Code::kBadConfig,
               "mesh.ranks_per_host = 4 does not cut the 6 ranks of dp");
  run = run_on_hosts(4, 2);
  run.mesh.cp = 2;
  EXPECT_ERROR(steps_of(run, 8), Code::kBadConfig, "strategy.secondary_shard beside mesh.cp = 2");
}

TEST(SecondaryShard, StandsInTheProofOfALargeRun) {
  spec::RunFile run = run_on_hosts(64, 8);
  run.model.layers = 12;
  const spec::Layout layout = trainable_layout(run, 64);
  const Quotient quotient = quotient_of(run, layout);
  EXPECT_EQ(quotient.ranks, 4);
  EXPECT_NE(trainable_layout(quotient.run, quotient.ranks).hosts_axis, kNoAxis);
  EXPECT_EQ(programs_of_run(run, spec::program_table(run, 1), layout, {0}).size(), 1u);
}

TEST(SecondaryShard, BringsItsWeightsToPassesWithoutTraining) {
  const Program losses = program::forward_only(steps_of(run_on_hosts(4, 2), 4)[0]);
  EXPECT_GE(std::ranges::count_if(losses.ops, gathers_a_weight), 6);
}

TEST(SecondaryShard, MutantsAreFound) {
  const spec::RunFile run = run_on_hosts(4, 2);
  const auto steps = steps_of(run, 4);
  const program::Expectation expected = expectation_of(run, 4);
  ASSERT_EQ(first_finding(steps, expected), "");
  const Mesh& mesh = steps[0].mesh;
  const int local = mesh.find("local"), hosts = mesh.find("hosts"), all = mesh.find("dp");
  int mutants = 0;
  const auto expect_found = [&](const char* what, const std::function<bool(Op&)>& change) {
    for (size_t i = 0; i < steps[0].ops.size(); ++i) {
      auto mutant = steps;
      bool changed = false;
      for (Program& step : mutant) changed = gathers_a_weight(step.ops[i]) && change(step.ops[i]);
      if (!changed) continue;
      ++mutants;
      EXPECT_NE(first_finding(mutant, expected), "") << what << ": " << describe(steps[0], steps[0].ops[i]);
    }
  };
  expect_found("of shards of all ranks inside a host", [&](Op& op) {
    if (op.axis != local) return false;
    op.reads[0] = program::weight(op.reads[0].index, program::kWhole.shard_on(all));
    return true;
  });
  expect_found("along the other axis", [&](Op& op) {
    op.axis = op.axis == local ? hosts : local;
    return true;
  });
  expect_found("of shards of a host among all ranks", [&](Op& op) {
    if (op.axis != local) return false;
    op.axis = all;
    return true;
  });
  expect_found("of another group", [&](Op& op) {
    op.reads[0].index = (op.reads[0].index + 1) % 3;
    return true;
  });
  EXPECT_GT(mutants, 10);
}

}  // namespace
}  // namespace herd::strategies
