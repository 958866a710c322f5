// Runs of many ranks are proved on a few that stand for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "herd/program/passes.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

using program::Op;
using program::OpKind;
using program::Program;
using program::ValueKind;

// Expects the same axes and rows of a run and its quotient.
void expect_stands_for(const Quotient& quotient, const spec::RunFile& run, const spec::Layout& layout) {
  const auto rows = [](const spec::RunFile& of, const spec::Layout& in) {
    std::vector<std::string> names;
    for (const StrategyRow& row : strategy_rows(of, spec::program_table(of, in.micro_batch), in))
      names.push_back(row.strategy->name());
    names.erase(names.begin());  // how many micro-batches
    return names;
  };
  const spec::Layout small = trainable_layout(quotient.run, quotient.ranks);
  ASSERT_EQ(layout.mesh.axes.size(), small.mesh.axes.size()) << summary(layout);
  for (size_t a = 0; a < layout.mesh.axes.size(); ++a)
    EXPECT_EQ(layout.mesh.axes[a].name.substr(0, 2), small.mesh.axes[a].name.substr(0, 2)) << summary(layout);
  EXPECT_EQ(rows(run, layout), rows(quotient.run, small)) << summary(layout);
}

// The same rows on the same axes, few ranks on each.
TEST(Quotient, ProvesALargeRun) {
  int index = 0, drawn = 0, copied = 0;
  for (const int tp : {1, 2, 6, 9}) {
    for (const int pp : {1, 2, 8}) {
      for (const auto& [dp, fsdp] : {std::pair(1, 1), {16, 1}, {4, 8}}) {
        for (const int zero : {0, 1, 2, 3}) {
          const int ranks = tp * pp * dp * fsdp;
          if (++index % 13 != 0 || ranks <= kMaxProvedRanks) continue;
          spec::RunFile run = small_run(48, "none", dp * fsdp * 40);
          run.model.heads = 18, run.model.width = 36, run.model.ffn = 72;
          const bool copies = tp == 6 && index % 2 == 0;  // two ranks for each key head
          run.model.kv_heads = copies ? 3 : 18, run.model.head_width = 2;
          run.mesh = {.dp = dp, .fsdp = fsdp, .tp = tp, .pp = pp};
          run.strategy.zero = dp * fsdp > 1 ? zero : 0;
          run.strategy.recompute = index % 2 == 0 ? "every:3" : "none";
          const char* orders[] = {"1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_v"};
          run.strategy.pipeline = orders[drawn++ % 4];
          if (pp == 1 && tp > 1) run.strategy.interleave_micro_batches = 1 + drawn % 3;
          const spec::Layout layout = trainable_layout(run, ranks);
          const Quotient quotient = quotient_of(run, layout);
          EXPECT_LE(quotient.ranks, 3 * 2 * 2 * (copies ? 6 : 3));
          if (copies) ++copied;
          expect_stands_for(quotient, run, layout);
          const auto steps = programs_of_run(run, spec::program_table(run, 1), layout, {0});
          EXPECT_THAT(quotient_text(run, layout, steps[0]), testing::HasSubstr("stand for " + std::to_string(ranks)));
        }
      }
    }
  }
  EXPECT_GT(copied, 0);
}

struct LargeRun {
  spec::RunFile run;
  int ranks = 1;
};

// More ranks than are proved as they are, which share tokens beside what else there is.
LargeRun sharing_tokens(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all = {values...};
    return all[random() % all.size()];
  };
  LargeRun out;
  spec::RunFile& run = out.run;
  do {
    run = small_run(4, one_of("none", "full", "every:2", "selective"), 1, one_of(true, false));
    run.mesh = {.dp = one_of(1, 2, 3), .fsdp = one_of(1, 1, 2), .tp = one_of(1, 1, 2, 3), .pp = one_of(1, 2, 4)};
    run.mesh.cp = one_of(2, 3, 4, 6, 8);
    out.ranks = static_cast<int>(run.mesh.dp * run.mesh.fsdp * run.mesh.tp * run.mesh.pp * run.mesh.cp);
  } while (out.ranks <= kMaxProvedRanks || out.ranks > 96);
  run.model.layers = std::max<int64_t>(3, 2 * run.mesh.pp);
  run.strategy.context = seed % 2 == 0 ? "ring" : "all_to_all";
  run.strategy.zero = one_of(0, 1, 2, 3);
  run.strategy.keep_whole = one_of(0, 1);
  run.strategy.sequence_parallel = one_of(true, false);
  run.strategy.keep_gathered = one_of(true, false);
  run.strategy.bucket = one_of(512, 4096);
  run.strategy.pipeline = run.mesh.pp == 1 ? "1f1b" : one_of("1f1b", "gpipe", "zero_bubble_h1", "interleaved");
  run.model.heads = run.mesh.tp * run.mesh.cp * one_of(1, 2);
  run.model.kv_heads = one_of(run.model.heads, run.mesh.tp, run.mesh.tp * run.mesh.cp, int64_t{1});
  run.model.head_width = 2, run.model.width = 12, run.model.ffn = 24;
  run.model.context = 2 * run.mesh.cp - 1;
  run.train.batch = run.mesh.dp * run.mesh.fsdp * run.mesh.pp * one_of(1, 3);
  return out;
}

// A change of the step of every rank, as a wrong rewrite would make it, at the first op that it applies to, or the
// last.
struct WrongRewrite {
  const char* what;
  std::function<bool(const Program&, const Op&)> applies;
  std::function<void(Program&, size_t)> change;

  bool change_all(std::vector<Program>& steps, bool last) const {
    bool changed = false;
    for (Program& step : steps) {
      size_t at = step.ops.size();
      for (size_t i = 0; i < step.ops.size() && (last || at == step.ops.size()); ++i) {
        if (applies(step, step.ops[i])) at = i;
      }
      if (at == step.ops.size()) continue;
      change(step, at);
      changed = true;
    }
    return changed;
  }
};

std::vector<WrongRewrite> wrong_rewrites() {
  const auto shares_tokens = [](const Program& step, const Op& op) {
    return op.axis != kNoAxis && op.axis == step.mesh.find("cp");
  };
  const auto in_ring = [=](const Program& step, const Op& op) { return is_pass(op) && shares_tokens(step, op); };
  const auto exchanges = [=](const Program&, const Op& op) { return op.kind == OpKind::kAllToAll; };
  const auto sums = [](const Program& step, const Op& op) {
    const bool is_sum = op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter;
    return is_sum && op.writes.at(0).kind == ValueKind::kGradient && op.axis != kNoAxis &&
           step.mesh.axes[static_cast<size_t>(op.axis)].name.find("cp") != std::string::npos;
  };
  const auto sums_on_two_axes = [=](const Program& step, const Op& op) {
    return op.kind == OpKind::kAllReduce && sums(step, op) && op.axis != step.mesh.find("cp");
  };
  const auto drop = [](Program& step, size_t i) { step.ops.erase(step.ops.begin() + static_cast<std::ptrdiff_t>(i)); };
  const auto twice = [](Program& step, size_t i) {
    const Op copy = step.ops[i];
    step.ops.insert(step.ops.begin() + static_cast<std::ptrdiff_t>(i), copy);
  };
  const auto along = [](const char* axis) {
    return [axis](Program& step, size_t i) { step.ops[i].axis = axis == nullptr ? kNoAxis : step.mesh.find(axis); };
  };
  return {{"an exchange is left out", exchanges, drop},
          {"an exchange is made twice", exchanges, twice},
          {"a pass of a ring is left out", in_ring, drop},
          {"ranks of a ring compute alone", in_ring, along(nullptr)},
          {"a sum of gradients is left out", sums, drop},
          {"a sum of gradients is made twice", sums, twice},
          {"gradients are summed over ranks that share tokens alone", sums_on_two_axes, along("cp")}};
}

// Ranks that share tokens, in a ring and by all-to-all, beside data ranks, shards, tensor ranks, stages, ZeRO and
// recompute. The quotient proves, and so does the whole where that does not take too long. Wrong rewrites do neither.
TEST(Quotient, OfMeshesDrawnWithRanksThatShareTokensProvesAsTheyDo) {
  constexpr uint64_t kMeshes = 90;
  const std::vector<WrongRewrite> wrong = wrong_rewrites();
  std::map<std::string, int> count;
  const auto stride = static_cast<uint64_t>(one_in(41, 59));
  const size_t ops_of_whole = stride == 1 ? 30'000 : 12'000;
  for (uint64_t seed = 1; seed <= kMeshes; seed += stride) {
    const auto [run, ranks] = sharing_tokens(seed);
    const spec::Layout layout = trainable_layout(run, ranks);
    const std::string text = "seed " + std::to_string(seed) + ", " + summary(layout) + ", " + run.strategy.context;
    const Program step = compile_step(run, spec::program_table(run, 1), layout, 0);
    EXPECT_FALSE(proves_run_itself(step, layout)) << text;
    const Quotient quotient = quotient_of(run, layout);
    expect_stands_for(quotient, run, layout);
    EXPECT_GT(quotient.run.mesh.cp, 1) << text;
    ++count[run.strategy.context + " meshes"];
    const bool whole_is_short = step.ops.size() * static_cast<size_t>(ranks) <= ops_of_whole;
    const auto expect_found = [&](const spec::RunFile& of, int of_ranks, const char* what) {
      const std::vector<Program> steps = steps_of(of, of_ranks);
      const program::Expectation expected = expectation_of(of, of_ranks);
      ASSERT_EQ(first_finding(steps, expected), "") << text;
      for (size_t i = 0; i < wrong.size(); ++i) {
        std::vector<Program> mutant = steps;
        if (!wrong[i].change_all(mutant, (seed + i) % 2 == 0)) continue;
        EXPECT_NE(first_finding(mutant, expected), "") << wrong[i].what << " in the " << what << " of " << text;
        ++count[std::string("wrong rewrites of the ") + what];
      }
    };
    expect_found(quotient.run, quotient.ranks, "quotient");
    if (!whole_is_short) continue;
    expect_found(run, ranks, "whole");
    ++count["wholes"];
  }
  EXPECT_EQ(count.size(), 5U) << "the sample has both kinds, and wholes";
  for (const auto& [what, number] : count) std::printf("%d %s\n", number, what.c_str());
}

// Layers without experts come first, so stages may have these alone, some of both, or experts in all layers.
TEST(Quotient, HasAStageOfEachKindThatTheRunHas) {
  const auto kinds = [](const spec::RunFile& run, const spec::Layout& layout) {
    const spec::ModelTable model = spec::program_table(run, 1);
    const std::vector<int> stages = spec::stage_of_blocks(model, layout.pp, layout.pipeline);
    std::set<int> with_experts;  // layers, of several blocks each where ranks exchange rows
    for (const spec::BlockShape& block : model.blocks) {
      if (block.routing_bytes > 0) with_experts.insert(block.layer);
    }
    std::map<int, std::set<bool>> has_experts;  // by stage: of its layers
    for (size_t b = 1; b + 1 < model.blocks.size(); ++b)
      has_experts[stages[b]].insert(with_experts.contains(model.blocks[b].layer));
    std::set<std::set<bool>> out;
    for (const auto& [stage, kind] : has_experts) out.insert(kind);
    return out;
  };
  std::set<std::set<std::set<bool>>> seen;
  for (const char* order : {"1f1b", "interleaved"}) {
    for (const int pp : {1, 2, 4, 8}) {
      for (const int64_t dense : {1, 4, 5, 16, 27, 31}) {
        spec::RunFile run = small_run(32, "none", 128);
        run.model.kind = "moe", run.model.norm = "rmsnorm", run.model.kv_heads = 2, run.model.head_width = 4;
        run.model.ffn = 16, run.model.expert_ffn = 8, run.model.experts = 4, run.model.top_k = 2;
        run.model.dense_layers = dense;
        run.mesh.pp = pp, run.mesh.ep = 2;
        run.strategy.pipeline = order;
        const spec::Layout layout = trainable_layout(run, 32);
        const Quotient quotient = quotient_of(run, layout);
        const spec::Layout small = trainable_layout(quotient.run, quotient.ranks);
        const auto of_run = kinds(run, layout), of_quotient = kinds(quotient.run, small);
        seen.insert(of_run);
        for (const std::set<bool>& kind : of_run) {
          EXPECT_EQ(of_quotient.count(kind), 1U)
              << order << ", " << pp << " stages, " << dense << " of 32 layers without experts, "
              << quotient.run.model.dense_layers << " of " << quotient.run.model.layers;
        }
        if (pp == 4 && dense == 16) {
          EXPECT_EQ(programs_of_run(run, spec::program_table(run, 1), layout, {0}).size(), 1U);
        }
      }
    }
  }
  EXPECT_GT(seen.size(), 3U);
}

}  // namespace
}  // namespace herd::strategies
