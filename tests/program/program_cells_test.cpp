#include "herd/program/program_cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "herd/spec/build_model_table.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/golden.h"

namespace herd::program {
namespace {

using Overrides = std::vector<std::string>;
using ::testing::HasSubstr;

// Returns the cells of the first `shown` ranks.
ProgramCells cells_of_run(const std::string& file, const Overrides& overrides, int ranks, int shown) {
  const spec::RunFile run = spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/" + file, overrides);
  const spec::Layout layout = strategies::trainable_layout(run, ranks);
  const spec::ModelTable model = spec::program_table(run, layout.micro_batch);
  std::vector<Program> programs;
  for (int rank = 0; rank < shown; ++rank) programs.push_back(strategies::compile_step(run, model, layout, rank));
  return cells_of(programs, model);
}

ProgramCells small(Overrides overrides, int ranks = 4) {
  overrides.push_back("model.layers=2");
  return cells_of_run("examples/gpt_kjv.toml", overrides, ranks, ranks);
}

int64_t bytes_of_rank(const ProgramCells& cells, size_t rank) {
  int64_t bytes = 0;
  for (size_t use = 0; use < cells.kUses.size(); ++use) bytes += cells.bytes_of(use, rank);
  return bytes;
}

TEST(ProgramCells, OfEachZeroStageAreTheGoldenOnes) {
  for (const std::string stage : {"0", "1", "2", "3"})
    testing_support::expect_golden("tests/program/golden/cells_zero" + stage + ".txt",
                                   cells_text(small({"strategy.zero=" + stage})));
}

// Rajbhandari et al. 2020, figure 1: 7.5 B parameters, 64 ranks, K = 12.
TEST(ProgramCells, SumToThePublishedBytesOfZero) {
  const double published[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage < 4; ++stage) {
    const ProgramCells cells = cells_of_run("share/herd/models/megatron-7.5b.toml",
                                            {"strategy.zero=" + std::to_string(stage), "strategy.keep_whole=0"}, 64, 1);
    const double gigabytes = static_cast<double>(bytes_of_rank(cells, 0)) / 1e9;
    EXPECT_NEAR(gigabytes, published[stage], 0.01 * published[stage] + 0.05) << stage;
  }
}

TEST(ProgramCells, SumToTheEquationsOfZero_ForFewRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (int stage = 0; stage < 4; ++stage) {
      const ProgramCells cells =
          small({"strategy.zero=" + std::to_string(stage), "strategy.keep_whole=0", "train.batch=12"}, ranks);
      const double parameters = static_cast<double>(small({}, 1).bytes_of(0, 0)) / 4;
      for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank)
        EXPECT_NEAR(static_cast<double>(bytes_of_rank(cells, rank)),
                    spec::zero_state_bytes(parameters, ranks, stage, spec::kFp32Adam), 64.0 * 4 * 5)
            << stage << " " << ranks;
    }
  }
}

// Whatever the layout, the parts that ranks keep of a group are all of it, and as often as ranks keep copies.
TEST(ProgramCells, PartsOfAllRanksAreTheWhole) {
  for (const Overrides& layout : {Overrides{},
                                  {"strategy.zero=2"},
                                  {"strategy.zero=3"},
                                  {"mesh.tp=2", "strategy.zero=3"},
                                  {"mesh.pp=2"},
                                  {"mesh.fsdp=2", "strategy.zero=3"},
                                  {"mesh.tp=2", "strategy.zero=1", "strategy.offload=states"}}) {
    const ProgramCells cells = small(layout);
    for (size_t group = 0; group < cells.groups.size(); ++group) {
      for (const auto& of_ranks : cells.rows[group]) {
        std::map<std::pair<int, int>, int> kept;  // times that each part is kept
        double sum = 0;
        for (const auto& cell : of_ranks) {
          if (cell.bytes == 0) continue;
          EXPECT_LT(cell.part, cell.parts);
          sum += 1.0 / cell.parts;
          ++kept[{cell.part, cell.parts}];
        }
        ASSERT_FALSE(kept.empty()) << cells.groups[group];
        const int parts = kept.begin()->first.second, copies = kept.begin()->second;
        EXPECT_EQ(kept.size(), static_cast<size_t>(parts)) << cells.groups[group];
        for (const auto& [part, times] : kept) EXPECT_EQ(times, copies) << cells.groups[group];
        EXPECT_DOUBLE_EQ(sum, copies);
      }
    }
  }
}

TEST(ProgramCells, SayWhatIsOnTheHost_AndWhatAStageLacks) {
  EXPECT_THAT(cells_text(small({"strategy.zero=1", "strategy.offload=states"})), HasSubstr("part 3 of 4, host"));
  const ProgramCells stages = small({"mesh.pp=2"}, 2);
  EXPECT_EQ(stages.rows.back()[0][0].bytes, 0);  // the final norm is the last stage's
  EXPECT_GT(stages.rows.back()[0][1].bytes, 0);
}

TEST(ProgramCells, AreDrawnWithTheirParts) {
  const std::string svg = cells_svg(small({"strategy.zero=3"}));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg"));
  EXPECT_THAT(svg, HasSubstr("rank 2, gradients of h.1: 434 KiB, part 2 of 4"));
  EXPECT_THAT(cells_svg(cells_of_run("examples/gpt_kjv.toml", {"train.batch=32"}, 16, 16)), HasSubstr("rank 15"));
}

}  // namespace
}  // namespace herd::program
