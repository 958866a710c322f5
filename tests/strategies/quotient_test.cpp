// Runs of many ranks are proved on a few that stand for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/strategies/small_run.h"

namespace herd::strategies {
namespace {

// The same rows on the same axes, few ranks on each.
TEST(Quotient, ProvesALargeRun) {
  const auto rows = [](const spec::RunFile& run, const spec::Layout& layout) {
    std::vector<std::string> names;
    for (const StrategyRow& row : strategy_rows(run, spec::program_table(run, layout.micro_batch), layout))
      names.push_back(row.strategy->name());
    return names;
  };
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
          const spec::Layout small = trainable_layout(quotient.run, quotient.ranks);
          ASSERT_EQ(layout.mesh.axes.size(), small.mesh.axes.size()) << ranks;
          for (size_t a = 0; a < layout.mesh.axes.size(); ++a)
            EXPECT_EQ(layout.mesh.axes[a].name.substr(0, 2), small.mesh.axes[a].name.substr(0, 2));
          EXPECT_LE(quotient.ranks, 3 * 2 * 2 * (copies ? 6 : 3));
          if (copies) ++copied;
          std::vector<std::string> large_rows = rows(run, layout), small_rows = rows(quotient.run, small);
          large_rows.erase(large_rows.begin()), small_rows.erase(small_rows.begin());  // how many micro-batches
          EXPECT_EQ(large_rows, small_rows);
          const auto steps = programs_of_run(run, spec::program_table(run, 1), layout, {0});
          EXPECT_THAT(quotient_text(run, layout, steps[0]), testing::HasSubstr("stand for " + std::to_string(ranks)));
        }
      }
    }
  }
  EXPECT_GT(copied, 0);
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
