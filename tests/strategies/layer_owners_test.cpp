// Owners of layers as a rewrite of ZeRO: what they write, that it proves, that mutants of it do not, and what ranks
// keep and send beside shards.
#include "herd/strategies/layer_owners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "herd/base/units.h"
#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"
#include "tests/golden.h"
#include "tests/strategies/small_run.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;
using testing::AnyOf;
using testing::HasSubstr;

spec::RunFile owners_run(int64_t zero, int ranks, int64_t micro_batches = 1, int64_t layers = 2, bool tied = false,
                         const std::string& recompute = "none") {
  spec::RunFile run = small_run(layers, recompute, ranks * micro_batches, tied);
  run.strategy.zero = zero;
  run.strategy.shard = "layers";
  run.strategy.bucket = 4096;
  return run;
}

TEST(LayerOwners, Prove_ForEveryStageRecomputeAndLayout) {
  int index = 0;
  for (const int64_t zero : {1, 2, 3}) {
    for (const char* recompute : {"none", "full", "every:2"}) {
      for (const int ranks : {2, 3, 4, 9}) {  // 9 ranks for 5 or 6 groups: some own nothing
        for (const int64_t micro_batches : {1, 2, 3}) {
          for (const bool tied : {false, true}) {
            if (++index % one_in(5, 41) != 0) continue;
            spec::RunFile run = owners_run(zero, ranks, micro_batches, 3, tied, recompute);
            run.strategy.prefetch = index % 3;
            run.strategy.keep_whole = index % 4;
            if (index % 4 == 0) run.optimizer.clip = 0, run.health.check_finite = false;
            for (const Program& step : steps_of(run, ranks))
              EXPECT_EQ(program::parse_program(to_text(step)), step) << to_text(step);
          }
        }
      }
    }
  }
}

TEST(LayerOwners, Prove_BesidePipelineTensorContextRanksAndReplicas) {
  struct Axes {
    int64_t fsdp, tp, pp, cp;
  };
  for (const int64_t zero : {1, 2, 3}) {
    for (const Axes& axes : std::vector<Axes>{{1, 1, 2, 1}, {1, 2, 1, 1}, {1, 1, 1, 2}, {2, 1, 1, 1}, {3, 1, 2, 1}}) {
      const int ranks = static_cast<int>(2 * axes.fsdp * axes.tp * axes.pp * axes.cp);
      spec::RunFile run = owners_run(zero, static_cast<int>(2 * axes.fsdp), 2, 3, true);
      run.mesh.fsdp = axes.fsdp, run.mesh.tp = axes.tp, run.mesh.pp = axes.pp, run.mesh.cp = axes.cp;
      const auto steps = steps_of(run, ranks);
      EXPECT_TRUE(std::ranges::any_of(steps[0].ops, program::is_rooted));
    }
  }
}

TEST(LayerOwners, WritesTheGoldenStepsOfAnOwnerAndOfARankThatOwnsNothing) {
  const auto steps = steps_of(owners_run(2, 5, 2, 1), 5);
  testing_support::expect_golden("tests/strategies/golden/layer_owners_zero2_dp5_mb2.txt", to_text(steps[0]));
  testing_support::expect_golden("tests/strategies/golden/layer_owners_zero2_dp5_mb2_owns_nothing.txt",
                                 to_text(steps[4]));
}

int64_t kept_bytes(const Program& step, ValueKind kind) {
  Program idle = step;
  idle.ops.clear();
  const auto by_kind = in_order_peak(idle, program::Tier::kDevice).by_kind;
  const auto at = by_kind.find(kind);
  return at == by_kind.end() ? 0 : at->second;
}

TEST(LayerOwners, KeepTogetherWhatOneRankKeeps_AndOneAtMostTheLargestGroupMoreThanTheMean) {
  for (const int ranks : {2, 3, 4, 9}) {
    for (const int64_t zero : {1, 2, 3}) {
      const spec::RunFile run = owners_run(zero, ranks, 1, 3);
      const spec::ModelTable model = spec::model_table(run, 1);
      const auto steps = steps_of(run, ranks);
      int64_t states = 0, most = 0, weights = 0, gradients = 0, largest = 0;
      for (const Program& step : steps) {
        const int64_t own = kept_bytes(step, ValueKind::kState);
        states += own, most = std::max(most, own);
        weights += kept_bytes(step, ValueKind::kWeight), gradients += kept_bytes(step, ValueKind::kGradient);
      }
      for (int group = 0; group < static_cast<int>(model.groups.size()); ++group)
        largest = std::max(largest, model.group_elements(group));
      const int64_t psi = model.parameters();
      EXPECT_EQ(states, 8 * psi);
      EXPECT_LE(most, states / ranks + 8 * largest);
      EXPECT_EQ(weights, 4 * psi * (zero == 3 ? 1 : ranks));
      EXPECT_EQ(gradients, 4 * psi * (zero >= 2 ? 1 : ranks));
    }
  }
}

TEST(LayerOwners, SendAsManyBytesTogetherAsShards) {
  const auto sent = [](const Program& step) {
    double bytes = 0;
    for (const Op& op : step.ops) {
      if (!is_collective(op) || (!op.writes.empty() && op.writes[0].kind == ValueKind::kNorm)) continue;
      bytes += static_cast<double>(message_bytes(step, op));
    }
    return bytes;
  };
  for (const int64_t zero : {1, 2, 3}) {
    spec::RunFile run = owners_run(zero, 4, 2);
    run.model.width = run.model.vocab = run.model.context = 64;  // so that no shard is padded
    spec::RunFile slices = run;
    slices.strategy.shard = "slices";
    const auto by_layer = steps_of(run, 4), by_slice = steps_of(slices, 4);
    for (size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(sent(by_layer[rank]), sent(by_slice[rank])) << zero;
  }
}

// The table of docs/guide/memory.md, of examples/gpt_kjv.toml with two layers on four ranks.
TEST(LayerOwners, KeepAndSendWhatTheGuideSays) {
  spec::RunFile run = spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/examples/gpt_kjv.toml",
                                           std::vector<std::string>{"model.layers=2", "strategy.keep_whole=0"});
  std::ostringstream guide;
  guide << std::ifstream(std::string(std::getenv("HERD_SOURCE_DIR")) + "/docs/guide/memory.md").rdbuf();
  for (const int64_t zero : {1, 2, 3}) {
    for (const char* shard : {"slices", "layers"}) {
      run.strategy.zero = zero, run.strategy.shard = shard;
      std::string kept;
      double sent = 0;
      for (const Program& step : steps_of(run, 4)) {
        int64_t bytes = 0;
        for (const ValueKind kind : {ValueKind::kWeight, ValueKind::kGradient, ValueKind::kState})
          bytes += kept_bytes(step, kind);
        kept += (kept.empty() ? "" : ", ") + format_bytes(static_cast<double>(bytes));
        for (const Op& op : step.ops) {
          const bool norms = !op.writes.empty() && op.writes[0].kind == ValueKind::kNorm;
          if (is_collective(op) && !norms) sent += static_cast<double>(message_bytes(step, op)) * 3 / 4 / 4;
        }
      }
      const std::string row =
          "| " + std::to_string(zero) + " | " + shard + " | " + kept + " | " + format_bytes(sent) + " |";
      EXPECT_NE(guide.str().find(row), std::string::npos) << row;
    }
  }
}

TEST(BalancedOwners, GiveTheLargestFirst_ToTheRankWithTheFewest_AndBalanceStagesByThemselves) {
  spec::RunFile run = owners_run(1, 2, 1, 6, true);
  run.model.vocab = 400;  // the embedding is as large as several layers
  const spec::ModelTable model = spec::model_table(run, 1);
  const auto loads = [&](const std::vector<int>& owners, const std::set<int>& groups, int ranks) {
    std::vector<int64_t> load(static_cast<size_t>(ranks));
    for (const int group : groups)
      load[static_cast<size_t>(owners[static_cast<size_t>(group)])] += model.group_elements(group);
    return load;
  };
  std::set<int> all;
  int64_t embedding = 0, layer = 0;  // the largest group, and the largest but that
  for (int group = 0; group < static_cast<int>(model.groups.size()); ++group) {
    all.insert(group);
    layer = std::max(layer, std::min(embedding, model.group_elements(group)));
    embedding = std::max(embedding, model.group_elements(group));
  }
  ASSERT_GT(embedding, 3 * layer);
  for (const int ranks : {1, 2, 3}) {
    const auto load = loads(balanced_owners(model, stages_of(model, 1), ranks), all, ranks);
    const auto [low, high] = std::ranges::minmax(load);
    EXPECT_LE(high - low, ranks == 3 ? embedding : layer) << ranks;
  }
  const Stages stages = stages_of(model, 2);
  const std::vector<int> owners = balanced_owners(model, stages, 2);
  for (std::set<int> groups : stages.first_held_groups) {
    groups.insert(stages.shared_groups.begin(), stages.shared_groups.end());
    const auto load = loads(owners, groups, 2);
    EXPECT_GT(*std::ranges::min_element(load), 0);
  }
}

TEST(LayerOwners, RefuseWhatDoesNotGoWithThem) {
  const auto refused = [](const std::function<void(spec::RunFile&)>& change, const std::string& words) {
    spec::RunFile run = owners_run(3, 2);
    change(run);
    expect_error([&] { steps_of(run, 2); }, Code::kBadConfig,
                 {"strategy.shard = \"layers\" does not go with " + words, "strategy.shard = \"slices\""});
  };
  refused([](auto& run) { run.strategy.zero = 0; }, "strategy.zero = 0");
  refused([](auto& run) { run.strategy.compression = "int8"; }, "strategy.compression = \"int8\"");
  refused([](auto& run) { run.strategy.gather_codec = "int8"; }, "strategy.gather_codec = \"int8\"");
  refused([](auto& run) { run.strategy.secondary_shard = true; }, "strategy.secondary_shard = true");
  refused([](auto& run) { run.strategy.offload = "states"; }, "strategy.offload = \"states\"");
  refused([](auto& run) { run.strategy.offload = "window"; }, "strategy.offload = \"window\"");
  refused([](auto& run) { run.strategy.offload = "nvme", run.strategy.delayed_update = true; },
          "strategy.delayed_update = true");
  refused([](auto& run) { run.strategy.zero = 0, run.strategy.sync = "server"; }, "strategy.sync = \"server\"");
  spec::RunFile alone = owners_run(0, 1);
  EXPECT_TRUE(std::ranges::none_of(steps_of(alone, 1)[0].ops, program::is_rooted));  // nothing to own
}

std::string first_fault(const std::vector<Program>& steps, const spec::RunFile& run) {
  return first_finding(steps, expectation_of(run, static_cast<int>(steps.size())));
}

std::vector<Op>::iterator find_kind(Program& step, OpKind kind) {
  return std::ranges::find_if(step.ops, [&](const Op& op) { return op.kind == kind; });
}

TEST(LayerOwnersMutants, ABroadcastLeftOutIsFound) {
  for (const int64_t zero : {1, 2, 3}) {
    const spec::RunFile run = owners_run(zero, 3, 2);
    auto steps = steps_of(run, 3);
    for (Program& step : steps) step.ops.erase(find_kind(step, OpKind::kBroadcast));
    EXPECT_THAT(first_fault(steps, run),
                AnyOf(HasSubstr("of version 0"), HasSubstr("of version -1"), HasSubstr("holds nothing")));
    steps = steps_of(run, 3);
    steps[1].ops.erase(find_kind(steps[1], OpKind::kBroadcast));
    EXPECT_THAT(first_fault(steps, run),
                AnyOf(HasSubstr("meets another"), HasSubstr("of version"), HasSubstr("holds nothing")));
  }
}

TEST(LayerOwnersMutants, AReduceToTheWrongRank_OrLeftOut_OrTwiceIsFound) {
  for (const int64_t zero : {1, 2, 3}) {
    const spec::RunFile run = owners_run(zero, 3, 2);
    auto steps = steps_of(run, 3);
    for (Program& step : steps) {
      Op& op = *find_kind(step, OpKind::kReduce);
      op.peer = (op.peer + 1) % 3;
    }
    EXPECT_THAT(first_fault(steps, run), AnyOf(HasSubstr("owns"), HasSubstr("must move what its owner holds")));
    // The values move to the wrong rank, too.
    steps = steps_of(run, 3);
    const auto at = find_kind(steps[0], OpKind::kReduce) - steps[0].ops.begin();
    const int owner = steps[0].ops[static_cast<size_t>(at)].peer, other = (owner + 1) % 3;
    std::vector<size_t> places;
    for (Program& step : steps)
      places.push_back(static_cast<size_t>(find_kind(step, OpKind::kReduce) - step.ops.begin()));
    const Op at_owner = steps[static_cast<size_t>(owner)].ops[places[static_cast<size_t>(owner)]];
    for (const Value& value : at_owner.writes)
      steps[static_cast<size_t>(other)].values[value] = steps[static_cast<size_t>(owner)].values.at(value);
    for (size_t rank = 0; rank < 3; ++rank) {
      Op& op = steps[rank].ops[places[rank]];
      op.peer = other;
      op.writes = static_cast<int>(rank) == other ? at_owner.writes : std::vector<Value>{};
    }
    EXPECT_THAT(first_fault(steps, run), HasSubstr("as the owner of g"));
    steps = steps_of(run, 3);
    steps[2].ops[places[2]].peer = other;  // one rank alone means another owner
    EXPECT_THAT(first_fault(steps, run), HasSubstr("meets another collective"));
    steps = steps_of(run, 3);
    for (Program& step : steps) step.ops.erase(find_kind(step, OpKind::kReduce));
    EXPECT_NE(first_fault(steps, run), "");
    steps = steps_of(run, 3);
    for (Program& step : steps) {
      const Op copy = *find_kind(step, OpKind::kReduce);
      step.ops.insert(find_kind(step, OpKind::kReduce), copy);
    }
    EXPECT_NE(first_fault(steps, run), "");
  }
}

TEST(LayerOwnersMutants, ASecondOwner_AndAStepOfARankThatOwnsNothingAreFound) {
  for (const int64_t zero : {1, 2, 3}) {
    const spec::RunFile run = owners_run(zero, 2);
    auto steps = steps_of(run, 2);
    const Op update = *find_kind(steps[0], OpKind::kStep);
    for (const auto* side : {&update.reads, &update.writes}) {
      for (const Value& value : *side) steps[1].values.insert({value, steps[0].values.at(value)});
    }
    EXPECT_THAT(first_fault(steps, run), HasSubstr("of dp owns"));  // rank 1 keeps what rank 0 owns
    steps[1].ops.push_back(update);
    EXPECT_NE(first_fault(steps, run), "");
    // A rank updates its whole weights with what it has of the gradient.
    steps = steps_of(run, 2);
    Op own = update;
    for (auto* side : {&own.reads, &own.writes}) {
      for (Value& value : *side) {
        if (value.placement.owned != 0) value.placement = program::kWhole;
        steps[1].values.insert({value, {.bytes = 1, .persistent = value.kind == ValueKind::kState}});
      }
    }
    const auto reduce = std::ranges::find_if(steps[1].ops, [&](const Op& op) {
      return op.kind == OpKind::kReduce && std::ranges::count(op.reads, own.reads[0]) > 0;
    });
    ASSERT_NE(reduce, steps[1].ops.end());
    steps[1].ops.insert(reduce + 1, own);
    EXPECT_NE(first_fault(steps, run), "");
  }
  // The owner's step left out.
  const spec::RunFile run = owners_run(2, 2);
  auto steps = steps_of(run, 2);
  steps[0].ops.erase(find_kind(steps[0], OpKind::kStep));
  EXPECT_NE(first_fault(steps, run), "");
}

TEST(LayerOwnersMutants, AnOpThatOneRankLeavesOutOrRunsTwiceIsFound) {
  int index = 0;
  for (const int64_t zero : {1, 2, 3}) {
    const spec::RunFile run = owners_run(zero, 3, 2, 2, true);
    const auto steps = steps_of(run, 3);
    const program::Expectation expected = expectation_of(run, 3);
    ASSERT_EQ(first_finding(steps, expected), "");
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      for (size_t i = 0; i < steps[rank].ops.size(); ++i) {
        const Op op = steps[rank].ops[i];
        if (op.kind == OpKind::kRelease || ++index % one_in(3, 31) != 0) continue;
        auto mutant = steps;
        mutant[rank].ops.erase(mutant[rank].ops.begin() + static_cast<long>(i));
        EXPECT_NE(first_finding(mutant, expected), "")
            << zero << ", rank " << rank << " without " << describe(steps[rank], op);
        mutant[rank].ops.insert(mutant[rank].ops.begin() + static_cast<long>(i), {op, op});
        EXPECT_NE(first_finding(mutant, expected), "")
            << zero << ", rank " << rank << " twice " << describe(steps[rank], op);
      }
    }
  }
}

}  // namespace
}  // namespace herd::strategies
