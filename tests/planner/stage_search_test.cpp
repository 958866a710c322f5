#include "herd/planner/stage_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "herd/base/error.h"
#include "herd/planner/prediction.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/strategy_table.h"
#include "tests/strategies/random_chain.h"

namespace herd::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A cut with its programs: the largest weight of a stage, and the bytes of the fullest rank.
struct BuiltCut {
  double weight = 0, bytes = 0;
};

BuiltCut built(const spec::RunFile& run, const spec::ModelTable& chain, spec::Layout layout,
               const std::vector<int>& cut) {
  layout.pipeline.stage_of_layers = cut;  // each block is a layer
  BuiltCut out;
  out.weight = std::ranges::max(strategies::testing::weights_of_stages(chain, cut));
  std::vector<program::Program> steps;
  try {
    for (const int rank : strategies::ranks_of_stages(layout))
      steps.push_back(strategies::compile_step(run, chain, layout, rank));
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("may share a group"));
    return {out.weight, kNever};
  }
  for (const program::Program& step : steps)
    out.bytes = std::max(out.bytes, static_cast<double>(peak_bound(step, program::Tier::kDevice, steps).bytes +
                                                        strategies::uncounted_bytes(step)));
  return out;
}

spec::RunFile drawn_run(std::mt19937& random, int stages) {
  const auto one_of = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  spec::RunFile run;
  run.mesh.pp = stages;
  run.mesh.dp = 1 + static_cast<int64_t>(random() % 2);
  run.train.micro_batch = 1;
  run.train.batch = run.mesh.dp * static_cast<int64_t>(2 + random() % 4);
  run.strategy.zero = static_cast<int64_t>(random() % 4);
  run.strategy.recompute = one_of({"none", "none", "full", "every:2"});
  run.strategy.pipeline = one_of({"1f1b", "1f1b", "gpipe", "zero_bubble_h1"});
  return run;
}

// Of all cuts of 100 small chains, built as programs, the fastest that fits a budget between the least and the most.
TEST(StageSearch, FindsTheFastestCutWhoseProgramsFit) {
  int chains = 0, slower = 0, none_fits = 0;
  for (uint32_t seed = 0; chains < 100; ++seed) {
    std::mt19937 random(seed);
    const spec::ModelTable chain = strategies::testing::random_chain(random);
    if (chain.blocks.size() > 6) continue;
    ++chains;
    const int stages = 2 + static_cast<int>(seed % 2);
    spec::RunFile run = drawn_run(random, stages);
    const int ranks = static_cast<int>(run.mesh.pp * run.mesh.dp);
    const spec::Layout layout = spec::resolve_mesh(run, ranks);
    std::vector<BuiltCut> cuts;
    double least = kNever, most = 0, fastest = kNever;
    for (const std::vector<int>& cut : strategies::testing::all_cuts(chain.blocks.size(), stages)) {
      const BuiltCut& one = cuts.emplace_back(built(run, chain, layout, cut));
      if (one.bytes == kNever) continue;
      least = std::min(least, one.bytes), most = std::max(most, one.bytes), fastest = std::min(fastest, one.weight);
    }
    if (least == kNever) continue;
    const double share = static_cast<double>(random() % 100) / 100;
    run.memory.device_budget = static_cast<int64_t>(least + share * (most - least)) - (seed % 8 == 0 ? 4096 : 0);
    const auto budget = static_cast<double>(run.memory.device_budget);
    double best = kNever;
    for (const BuiltCut& one : cuts) {
      if (one.bytes <= budget) best = std::min(best, one.weight);
    }
    const BuiltCut chosen = built(run, chain, layout, with_stage_cut(run, chain, layout).pipeline.stage_of_layers);
    const std::string text = "seed " + std::to_string(seed) + " zero " + std::to_string(run.strategy.zero) + " " +
                             run.strategy.pipeline + " recompute " + run.strategy.recompute;
    if (best == kNever) {
      EXPECT_EQ(chosen.bytes, least) << text;
      ++none_fits;
      continue;
    }
    EXPECT_LE(chosen.bytes, budget) << text;
    EXPECT_NEAR(chosen.weight / best, 1, 1e-9) << text;
    slower += best > fastest * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_GT(slower, 15);
  EXPECT_GT(none_fits, 2);
}

}  // namespace
}  // namespace herd::planner
