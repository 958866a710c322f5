#include "herd/planner/variants_that_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "herd/base/error.h"
#include "herd/planner/partitioned_model_internal.h"
#include "herd/planner/variants_internal.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/support/expect_error.h"

namespace herd::planner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

spec::RunFile gpt(std::vector<std::string> overrides = {}) {
  return spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/gpt-162m.toml",
                              overrides);
}

// What herd train compares with the budget.
int64_t needed(const spec::RunFile& run, int ranks, spec::Kernels kernels = spec::Kernels::kCpu) {
  const spec::Layout layout = strategies::trainable_layout(run, ranks);
  return peak_bound(strategies::compile_step(run, spec::model_table(run, layout.micro_batch, kernels), layout, 0),
                    program::Tier::kDevice)
      .bytes;
}

// ZeRO-2 and 3, and 16-bit gradients, do not go with it.
TEST(Variants, LeaveOutWhatTheRunDoesNotGoWith) {
  const spec::RunFile run = gpt({"strategy.compression=bf16"});
  const Variants variants = variants_that_fit(run, 2, small_server(2), {.device = 2 * kGiB});
  EXPECT_GT(variants.built, 4);
  EXPECT_THAT(variants.with_other_results, testing::IsEmpty());
  for (const Variant& one : variants.fitting) EXPECT_LE(one.run.strategy.zero, 1);
  const Variants wide = variants_that_fit(gpt({"strategy.compression=bf16", "strategy.gradient_precision=fp32"}), 2,
                                          small_server(2), {.device = 2 * kGiB});
  ASSERT_THAT(wide.with_other_results, testing::SizeIs(1));
  EXPECT_THAT(wide.with_other_results[0].changes, testing::ElementsAre("strategy.precision=bf16"));
  EXPECT_ERROR(variants_that_fit(gpt({"strategy.compression=bf16", "strategy.zero=3"}), 2, small_server(2), {}),
               Code::kBadConfig, "strategy.zero = 3 adds to them");
}

TEST(Variants, FitTheBudget_AndTheFirstIsTheShortestOfAllCombinations) {
  const Budget budget{.device = 2 * kGiB};
  const spec::RunFile run = gpt();
  const Variants variants = variants_that_fit(run, 2, small_server(2), budget);
  EXPECT_FALSE(variants.least_memory);
  ASSERT_FALSE(variants.fitting.empty());
  double shortest = 1e300;
  int built = 0;
  for (const char* zero : {"0", "1", "2", "3"}) {
    for (const char* recompute : {"none", "sqrt", "full"}) {
      for (const char* size : {"2", "1"}) {
        const spec::RunFile other = gpt({std::string("strategy.zero=") + zero, std::string("train.micro_batch=") + size,
                                         std::string("strategy.recompute=") + recompute, "strategy.prefetch=1"});
        ++built;
        if (needed(other, 2) <= budget.device)
          shortest = std::min(shortest, predict(other, 2, small_server(2)).step_us);
      }
    }
  }
  EXPECT_EQ(variants.built, built);
  EXPECT_LE(variants.fitting[0].prediction.step_us, 1.01 * shortest);
  for (const Variant& one : variants.fitting) {
    EXPECT_LE(one.prediction.device_bound, static_cast<double>(budget.device));
    EXPECT_EQ(one.prediction.device_bound, static_cast<double>(needed(one.run, 2)));
    spec::RunFile again = gpt(one.changes);
    again.strategy.prefetch = one.run.strategy.prefetch;
    again.strategy.keep_whole = one.run.strategy.keep_whole;
    again.strategy.window = one.run.strategy.window;
    again.strategy.file_layers = one.run.strategy.file_layers;
    again.strategy.partition_bytes = one.run.strategy.partition_bytes;
    again.strategy.credit = one.run.strategy.credit;
    EXPECT_EQ(again, one.run) << "the changes give the run";
  }
}

TEST(Variants, ChangeNothing_WhereTheRunFitsAndNothingIsQuicker) {
  const spec::RunFile run = gpt();
  const Variants variants = variants_that_fit(run, 1, small_server(2), {.device = 4 * kGiB});
  ASSERT_FALSE(variants.fitting.empty());
  EXPECT_TRUE(variants.fitting[0].changes.empty());
}

// Half of the micro-batch would be more micro-batches than a step may have.
TEST(Variants, LeaveOutStepsOfTooManyMicroBatches) {
  const spec::RunFile run = gpt({"train.batch=65538", "train.micro_batch=65538", "model.layers=1", "model.width=8",
                                 "model.heads=1", "model.context=8", "model.vocab=16"});
  EXPECT_NO_THROW(variants_that_fit(run, 1, small_server(1), {.device = 1}));
}

TEST(Variants, SayWhatComesNearest_AndByHowManyBytesItMisses) {
  const Budget budget{.device = kGiB};
  const Variants variants = variants_that_fit(gpt(), 2, small_server(2), budget);
  EXPECT_TRUE(variants.fitting.empty());
  ASSERT_TRUE(variants.least_memory);
  EXPECT_THAT(variants.least_memory->changes, testing::Contains("strategy.zero=3"));
  EXPECT_GT(variants.least_memory->prediction.device_bound, static_cast<double>(budget.device));
  const std::string text = advice(variants, budget);
  EXPECT_THAT(text, HasSubstr("nothing fits"));
  EXPECT_THAT(text, HasSubstr(" too much"));
  EXPECT_THAT(text, HasSubstr("strategy.precision=bf16"));
}

// Where the automatic keys do not suffice, techniques that no equation covers are tried one at a time, by their
// programs.
TEST(Variants, TryOneMoreTechnique_WhereNothingFits) {
  const auto keys_of = [](const std::vector<Variant>& variants) {
    std::set<std::string> keys;
    for (const Variant& one : variants) keys.insert(one.changes.begin(), one.changes.end());
    return keys;
  };
  const Budget budget{.device = kGiB};
  const Variants dense = variants_that_fit(gpt(), 2, small_server(2), budget);
  EXPECT_THAT(keys_of(dense.by_one_more), testing::Contains("strategy.offload=window"));
  for (const Variant& one : dense.by_one_more) {
    EXPECT_LE(one.prediction.device_bound, static_cast<double>(budget.device));
    EXPECT_TRUE(one.prediction.simulated);
  }
  EXPECT_THAT(advice(dense, budget), HasSubstr("with one more technique"));
  const Variants roomy = variants_that_fit(gpt(), 2, small_server(2), {.device = 8 * kGiB});
  EXPECT_THAT(roomy.by_one_more, testing::IsEmpty());
}

TEST(Variants, ShareExpertsAmongAllNumbersOfRanksThatDivideThem) {
  spec::RunFile run = gpt({"model.kind=moe", "model.experts=12", "model.top_k=2", "model.norm=rmsnorm"});
  std::vector<int64_t> ranks;
  each_without_equations(run, {8, 8}, [&](const spec::RunFile& changed) {
    if (changed.mesh.ep > 1) ranks.push_back(changed.mesh.ep);
  });
  EXPECT_THAT(ranks, ElementsAre(2, 4));
}

// A row's value that changes results is offered beside what changes none, with what the row says of it.
TEST(Variants, SayWhatEachOtherPrecisionCosts_AsItsRowStatesIt) {
  const Budget budget{.device = kGiB};
  const auto advice_of = [&](const std::vector<std::string>& keys) {
    return advice(variants_that_fit(gpt(keys), 2, small_server(2), budget), budget);
  };
  EXPECT_THAT(advice_of({}), HasSubstr("\n  strategy.precision=bf16 does not fit without other changes ("));
  EXPECT_THAT(advice_of({}), HasSubstr("), but numbers are rounded to 16 bit"));
  EXPECT_THAT(advice_of({"strategy.precision=bf16"}), testing::Not(HasSubstr("strategy.precision")));
  const strategies::AddedTechnique coarse(
      {.name = "coarse sums",
       .supports = {{"strategy.context", {"ring"}}},
       .alternatives = {{.key = "strategy.context",
                         .result_change = "most of each gradient comes a step late",
                         .values = [](const spec::RunFile&,
                                      const strategies::RankCounts&) { return std::vector<spec::KeyValue>{"ring"}; }}}},
      "compression");
  EXPECT_THAT(advice_of({}), HasSubstr("\n  strategy.context=ring does not fit without other changes ("));
  EXPECT_THAT(advice_of({}), HasSubstr("), but most of each gradient comes a step late"));
  EXPECT_THAT(advice_of({"strategy.context=ring"}), testing::Not(HasSubstr("most of each gradient")));
  EXPECT_THAT(resolve(gpt({"strategy.auto=true"}), 2, small_server(2), {.device = 2 * kGiB}).summary,
              testing::Not(HasSubstr("ring")))
      << "strategy.auto changes no result";
}

TEST(Resolve, TakesTheFirst_AndLeavesNothingToHerd) {
  const spec::RunFile run = gpt({"strategy.auto=true", "memory.device_budget=2GiB"});
  const Budget budget{.device = run.memory.device_budget};
  const ResolvedRun resolved = resolve(run, 2, small_server(2), budget);
  EXPECT_FALSE(resolved.run.strategy.automatic);
  EXPECT_NE(resolved.run.strategy.prefetch, spec::kAuto);
  EXPECT_NE(resolved.run.strategy.keep_whole, spec::kAuto);
  EXPECT_LE(needed(resolved.run, 2), budget.device);
  EXPECT_THAT(resolved.summary, HasSubstr("strategy.auto: strategy.zero="));
  EXPECT_EQ(resolve(run, 2, small_server(2), budget).run, resolved.run) << "ranks choose alike";
  EXPECT_EQ(resolve(resolved.run, 2, small_server(2), budget).run, resolved.run);
}

TEST(Resolve, ChoosesAlike_WhateverARunMeasuredOfTheMachines) {
  const spec::RunFile run = gpt({"strategy.zero=3"});
  Cluster machines = small_server(2);
  const spec::RunFile chosen = resolve(run, 2, machines, {}).run;
  machines.topology.hosts[0].core_bytes_per_us /= 50;  // gathers that take long are worth beginning early
  machines.topology.hosts[0].memory_bytes_per_us /= 50;
  EXPECT_NE(resolve(run, 2, machines, {}).run, chosen) << "rates that are stated count";
  machines.measured.emplace();
  EXPECT_EQ(resolve(run, 2, machines, {}).run, chosen);
}

TEST(Resolve, ThrowsWithTheNearest_WhereNothingFits) {
  try {
    resolve(gpt({"strategy.auto=true"}), 2, small_server(2), {.device = kGiB});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOverBudget);
    EXPECT_THAT(error.message(), HasSubstr("the nearest is train.micro_batch=1 strategy.zero=3"));
  }
}

// Devices of their own that wait for the network: gathers must run ahead to be hidden.
Cluster slow_network() {
  Cluster cluster = small_server(16);
  cluster.topology.hosts[0].ranks = 1;
  cluster.topology.hosts[0].uplink.bytes_per_us = 3e3;
  cluster.device = {
      .has_own_device = true, .matmul_flops_per_us = 20e6, .attention_flops_per_us = 20e6, .bytes_per_us = 2e6};
  return cluster;
}

TEST(Prefetch, IsTheSmallestDepthWithinAHundredthOfTheBest) {
  const spec::RunFile run = gpt({"strategy.zero=3", "train.batch=256", "train.micro_batch=32"});
  std::vector<double> times;
  for (int64_t depth = 0; depth <= 8; ++depth) {
    spec::RunFile fixed = run;
    fixed.strategy.prefetch = depth;
    times.push_back(predict(fixed, 8, slow_network()).step_us);
  }
  const double best = *std::min_element(times.begin(), times.end());
  const int64_t chosen = with_numbers(run, 8, slow_network(), {}).strategy.prefetch;
  EXPECT_GT(chosen, 0);
  EXPECT_LE(times[static_cast<size_t>(chosen)], 1.01 * best);
  EXPECT_GT(times[static_cast<size_t>(chosen - 1)], 1.01 * best);
}

TEST(Prefetch, StaysWithinTheBudget_AndAsStatedWhereItIs) {
  spec::RunFile run = gpt({"strategy.zero=3", "train.batch=256", "train.micro_batch=32"});
  spec::RunFile none = run;
  none.strategy.prefetch = 0;
  EXPECT_EQ(with_numbers(run, 8, slow_network(), {.device = needed(none, 8, slow_network().device.kernels())})
                .strategy.prefetch,
            0);
  run.strategy.prefetch = 5;
  EXPECT_EQ(with_numbers(run, 8, slow_network(), {}).strategy.prefetch, 5);
}

TEST(Prefetch, IsTheBestThatWasTried_WhereTheTimeOfTheSearchIsOver) {
  const spec::RunFile run = gpt({"strategy.zero=3", "train.batch=256", "train.micro_batch=32"});
  SearchLimit over(0, nullptr);
  EXPECT_EQ(with_numbers(run, 8, slow_network(), {.device = int64_t{1} << 40}, &over).strategy.prefetch, 0);
  EXPECT_THAT(over.left_out(), ElementsAre("values of strategy.prefetch", "values of strategy.keep_whole"));
}

TEST(Window, IsTheFewestPassesThatNearlyHideTheCopies) {
  spec::RunFile run = gpt({"strategy.offload=window", "train.batch=8", "train.micro_batch=4", "memory.link=8GB/s"});
  const auto step_us = [&](int64_t window) {
    spec::RunFile fixed = run;
    fixed.strategy.window = window;
    return predict(fixed, 1, small_server(1)).step_us;
  };
  const int64_t most = static_cast<int64_t>(spec::model_table(run, 1).blocks.size());
  const int64_t chosen = with_numbers(run, 1, small_server(1), {}).strategy.window;
  EXPECT_GE(chosen, 1);
  EXPECT_LE(step_us(chosen), 1.01 * step_us(most));
  EXPECT_TRUE(chosen == 1 || step_us(chosen - 1) > 1.01 * step_us(most));
  run.strategy.window = 3;
  EXPECT_EQ(with_numbers(run, 1, small_server(1), {}).strategy.window, 3);
}

TEST(FileLayers, AreAsFewAsTheHostsBudgetAsksFor) {
  spec::RunFile run = gpt({"strategy.offload=window", "strategy.window=2", "train.batch=2", "train.micro_batch=2"});
  const spec::Layout layout = strategies::trainable_layout(run, 1);
  const auto host_bytes = [&](int64_t file_layers) {
    spec::RunFile fixed = run;
    fixed.strategy.file_layers = file_layers;
    return peak_bound(strategies::compile_step(fixed, spec::program_table(run, layout.micro_batch), layout, 0),
                      program::Tier::kHost)
        .bytes;
  };
  EXPECT_EQ(with_numbers(run, 1, small_server(1), {}).strategy.file_layers, 0);
  const int64_t all = host_bytes(0);
  for (const int64_t budget : {all, all * 3 / 4, all / 2}) {
    run.memory.host_budget = budget;
    const int64_t chosen = with_numbers(run, 1, small_server(1), {.host = budget}).strategy.file_layers;
    EXPECT_LE(host_bytes(chosen), budget);
    EXPECT_EQ(chosen == 0, budget == all);
    EXPECT_TRUE(chosen == 0 || host_bytes(chosen - 1) > budget) << chosen;
  }
}

// Over a link that copies the weights of both passes in 1.5 times what a micro-batch computes.
TEST(DirectBlocks, LeaveNoCopyToWaitForBeforeTheFirstForwardAndTheLastBackward) {
  spec::RunFile run =
      gpt({"strategy.offload=window", "strategy.window=2", "train.batch=4", "train.micro_batch=1",
           "memory.link=0.4GB/s", "strategy.order=layer_major", "optimizer.clip=0", "health.check_finite=false"});
  const auto compute = [&](const std::string& blocks) {  // spans in the order of time
    spec::RunFile fixed = run;
    fixed.strategy.direct_host = blocks;
    const program::Simulation simulation = *predict(fixed, 1, small_server(1)).simulation;
    std::vector<sim::Span> spans;
    for (const sim::Span& span : simulation.timeline.spans) {
      if (simulation.timeline.rows[static_cast<size_t>(span.row)].name == "compute") spans.push_back(span);
    }
    std::ranges::sort(spans, {}, &sim::Span::start_us);
    return spans;
  };
  // How long the first forward waits from the step's begin, and the last backward that needs weights after the pass
  // before it.
  const auto waits_us = [](const std::vector<sim::Span>& spans) {
    const auto begins = [](const char* name) {
      return [name](const sim::Span& span) { return span.name.starts_with(name); };
    };
    const auto first = std::ranges::find_if(spans, begins("forward block0 mb0"));
    const auto last = std::ranges::find_if(spans, begins("backward block1 mb0"));
    return std::pair(first->start_us, last->start_us - (last - 1)->end_us);
  };
  run.strategy.direct_host = "auto";
  const std::string chosen = with_numbers(run, 1, small_server(1), {}).strategy.direct_host;
  EXPECT_THAT(chosen, HasSubstr("embedding"));
  const auto [first_us, last_us] = waits_us(compute(chosen));
  EXPECT_LT(first_us, 100) << chosen;
  EXPECT_LT(last_us, 1) << chosen;
  EXPECT_GT(waits_us(compute("none")).first, 1e5);
  Cluster accelerator = small_server(1);
  accelerator.device.has_own_device = true;
  EXPECT_EQ(with_numbers(run, 1, accelerator, {}).strategy.direct_host, "none");
}

// Two hosts on a link that takes about as long for the gradients as they compute.
TEST(PartitionAndCredit, AreNearlyTheBestOfAGrid_AndHideWhatFifoWaitsFor) {
  const spec::RunFile run = gpt({"strategy.schedule=priority", "train.batch=8", "train.micro_batch=4",
                                 "model.context=128", "optimizer.clip=0", "health.check_finite=false"});
  Cluster slow = small_server(1);
  slow.topology.hosts[0].uplink.bytes_per_us = 125;
  slow.topology.hosts.assign(2, slow.topology.hosts[0]);
  const spec::RunFile chosen = with_numbers(run, 2, slow, {});
  const auto step_us = [&](const spec::RunFile& of) { return predict(of, 2, slow).step_us; };
  double best = 1e300;
  for (const int64_t partition_bytes : {1 << 20, 4 << 20, 16 << 20, 64 << 20}) {
    for (const int64_t credit : {0, 2, 8, 32}) {
      spec::RunFile fixed = run;
      fixed.strategy.partition_bytes = partition_bytes, fixed.strategy.credit = credit;
      best = std::min(best, step_us(fixed));
    }
  }
  EXPECT_LE(step_us(chosen), 1.05 * best);
  EXPECT_GT(chosen.strategy.credit, 0) << "the link would be idle during backward";
  spec::RunFile fifo = run;
  fifo.strategy.schedule = "fifo";
  EXPECT_LE(step_us(chosen), step_us(fifo) / 1.1);
  RecordProperty("fifo over priority", std::to_string(step_us(fifo) / step_us(chosen)));
  fifo = with_numbers(fifo, 2, slow, {});
  EXPECT_FALSE(beyond_equations(fifo, spec::resolve_mesh(fifo, 2))) << "numbers that do not apply are no obstacle";
}

// A server of its own behind a link that takes about as long for pushes as two ranks of one host compute.
TEST(PartitionAndCredit, HideWhatFifoWaitsFor_AtAServerBehindASlowLink) {
  const spec::RunFile run =
      gpt({"strategy.schedule=priority", "train.batch=8", "train.micro_batch=4", "model.context=128",
           "optimizer.clip=0", "strategy.sync=server", "strategy.dedicated_servers=1"});
  Cluster slow = small_server(2);
  slow.topology.hosts[0].ranks = 2;
  slow.topology.hosts[0].uplink.bytes_per_us = 250;
  slow.topology.hosts.assign(2, slow.topology.hosts[0]);
  slow.topology.hosts[1].ranks = 1;
  Cluster fast = slow;
  for (Host& host : fast.topology.hosts) host.uplink.bytes_per_us = 25000;
  const spec::RunFile chosen = with_numbers(run, 3, slow, {});
  spec::RunFile fifo = run;
  fifo.strategy.schedule = "fifo";
  const double priority_us = predict(chosen, 3, slow).step_us, fifo_us = predict(fifo, 3, slow).step_us;
  EXPECT_LE(priority_us, fifo_us / 1.1);
  EXPECT_GT(fifo_us, 1.1 * predict(fifo, 3, fast).step_us) << "the link of the server counts";
  // Both ranks push all gradients over one uplink, and pull as much: neither direction takes less.
  const Prediction of = predict(chosen, 3, slow);
  EXPECT_GE(priority_us, 2 * 4 * static_cast<double>(of.parameters) / 250);
  RecordProperty("fifo over priority", std::to_string(fifo_us / priority_us));
}

TEST(KeepWhole, IsTheFewestGroupsWithinAHundredthOfTheBestThatFits) {
  const spec::RunFile run = gpt({"strategy.zero=3", "strategy.prefetch=1", "train.batch=256", "train.micro_batch=8"});
  spec::RunFile fixed = run;
  const auto step_us = [&](int64_t whole) {
    fixed.strategy.keep_whole = whole;
    return predict(fixed, 8, slow_network()).step_us;
  };
  fixed.strategy.keep_whole = 6;
  const Budget budget{.device = needed(fixed, 8, slow_network().device.kernels())};
  const int64_t chosen = with_numbers(run, 8, slow_network(), budget).strategy.keep_whole;
  EXPECT_GT(chosen, 0);
  EXPECT_LE(chosen, 6);
  EXPECT_LE(step_us(chosen), 1.01 * step_us(6));
  EXPECT_GT(step_us(chosen - 1), 1.01 * step_us(6));
  EXPECT_LT(step_us(chosen), 0.95 * step_us(0)) << "gathers over a slow network cost time";
}

TEST(KeepWhole, CostsNoMemoryWithoutABudget_AndIsAsStatedWhereItIs) {
  spec::RunFile run = gpt({"strategy.zero=3", "strategy.prefetch=1", "train.batch=256", "train.micro_batch=8"});
  EXPECT_EQ(with_numbers(run, 8, slow_network(), {}).strategy.keep_whole, 0);
  run.model.tie_embeddings = true;  // a group of its own size, so its buffer is shared with none
  spec::RunFile fixed = with_numbers(run, 8, slow_network(), {});
  EXPECT_EQ(fixed.strategy.keep_whole, 1);
  const int64_t with_one = needed(fixed, 8);
  fixed.strategy.keep_whole = 0;
  EXPECT_LT(with_one, needed(fixed, 8));
  run.strategy.keep_whole = 3;
  EXPECT_EQ(with_numbers(run, 8, slow_network(), {}).strategy.keep_whole, 3);
  EXPECT_EQ(with_numbers(run, 1, slow_network(), {}).strategy.keep_whole, 3);
}

// Groups that are kept are gathered exact, so with a codec their number changes the losses.
TEST(KeepWhole, IsNoneWithACodec_UnlessStated) {
  spec::RunFile run = gpt({"strategy.zero=3", "strategy.prefetch=0", "strategy.gather_codec=int8", "train.batch=64",
                           "train.micro_batch=1", "model.context=16"});
  const Budget budget{.device = 64 * kGiB};
  spec::RunFile all_kept = run, none_kept = run;
  all_kept.strategy.keep_whole = 14, none_kept.strategy.keep_whole = 0;
  EXPECT_LT(predict(all_kept, 2, small_server(2)).step_us, 0.98 * predict(none_kept, 2, small_server(2)).step_us);
  EXPECT_EQ(with_numbers(run, 2, small_server(2), budget).strategy.keep_whole, 0);
  run.strategy.keep_whole = 3;
  EXPECT_EQ(with_numbers(run, 2, small_server(2), budget).strategy.keep_whole, 3);
}

// What lies between "as it is" and recompute: inputs of cut blocks are gathered again, which sends more.
TEST(Variants, GatherInputsAgain_WhereKeepingThemDoesNotFit) {
  const spec::RunFile run = gpt({"mesh.tp=2", "mesh.dp=1", "model.layers=4", "train.micro_batch=1", "train.batch=1"});
  const auto needs = [&](const spec::RunFile& of) {
    const spec::Layout layout = strategies::trainable_layout(of, 2);
    return peak_bound(strategies::compile_step(of, spec::program_table(of, layout.micro_batch), layout, 0),
                      program::Tier::kDevice)
        .bytes;
  };
  spec::RunFile again = run;
  again.strategy.keep_gathered = false;
  ASSERT_LT(needs(again), needs(run));
  const Variants tight = variants_that_fit(run, 2, small_server(2), {.device = needs(run) - 1});
  ASSERT_FALSE(tight.fitting.empty());
  EXPECT_EQ(tight.fitting[0].changes, (std::vector<std::string>{"strategy.keep_gathered=false"}));
  const Variants roomy = variants_that_fit(run, 2, small_server(2), {});
  EXPECT_THAT(roomy.fitting[0].changes, testing::IsEmpty());
}

}  // namespace
}  // namespace herd::planner
