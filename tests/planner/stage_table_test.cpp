#include "herd/planner/stage_table.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "herd/planner/stage_search.h"
#include "herd/spec/run_file.h"

namespace herd::planner {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string stages(const std::vector<std::string>& changes, int ranks) {
  std::vector<std::string> all = {"train.micro_batch=1", "train.batch=8"};  // a later one counts
  all.insert(all.end(), changes.begin(), changes.end());
  const std::string file = std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/gpt-162m.toml";
  const spec::RunFile run = spec::parse_run_file(file, all);
  const spec::Layout layout = spec::resolve_mesh(run, ranks);
  return stages_text(run, with_stage_cut(run, spec::program_table(run, layout.micro_batch), layout), small_server(2));
}

TEST(StageTable, SaysThatThereIsNoPipeline_WhereThereIsNone) { EXPECT_EQ(stages({}, 1), "no pipeline: mesh.pp = 1\n"); }

TEST(StageTable, HoldsEachBlockOnce_AndComparesTheArithmeticOfStages) {
  EXPECT_THAT(stages({"mesh.pp=2"}, 2),
              StartsWith("rank  stage  blocks            parameters  arithmetic    time    states  activations  "
                         "sends on\n"
                         "0         0  embedding to h.8       103 M       100 %  1.28 s  1.53 GiB      221 MiB   "
                         "768 KiB\n"  // 162 M in both
                         "1         1  h.9 to head           59.9 M        92 %  1.11 s   913 MiB     88.9 MiB         "
                         "-\n"
                         "arithmetic: relative to the stage that has most; time: of the passes of a micro-batch; sends "
                         "on: to the next stage, for each micro-batch\n"
                         "states: weights, gradients and the optimizer's; activations: with buffers, when the rank "
                         "holds most\n"
                         "rank 0 sets the pace: 1.28 s a micro-batch; rank 0 holds most: 1.74 GiB\n\n"
                         "1f1b with stages that take equally long, 8 micro-batches:\nrank 0  F0 F1 "));
}

TEST(StageTable, HasARowForEachStageOfARank) {
  EXPECT_THAT(stages({"mesh.pp=2", "strategy.pipeline=interleaved"}, 2),
              AllOf(ContainsRegex("\n0 +0  embedding to h.3 .*\n0 +2  h.7 to h.11 "),
                    ContainsRegex("\n1 +1  h.4 to h.6 .*\n1 +3  head ")));
}

TEST(StageTable, ShowsTheCutThatFitsABudget_AndTheBudgetBesideWhatIsHeld) {
  EXPECT_THAT(stages({"mesh.pp=2", "memory.device_budget=1600MiB"}, 2),
              AllOf(ContainsRegex("\n0 +0  embedding to h.6 "), HasSubstr("rank 1 sets the pace: "),
                    ContainsRegex("rank 0 holds most: .* of memory.device_budget = 1.56 GiB\n")));
}

TEST(StageTable, CountsAllTensorsThatLaterStagesRead) {
  spec::ModelTable chain;
  chain.batch = {{.name = "image", .bytes = 64, .differentiable = false}};
  for (int b = 0; b < 3; ++b) {
    chain.blocks.push_back({.name = "block" + std::to_string(b), .output_bytes = b < 2 ? 4096 : 0, .layer = b});
    chain.blocks.back().forward.matmul_flops = 1e9;
    if (b < 2) chain.blocks.back().outputs = {{.bytes = 1024}, {.bytes = 3072, .differentiable = false}};
  }
  chain.blocks[2].inputs = {{2, 0}, {1, 1}, {1, 0}};
  const std::string file = std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/gpt-162m.toml";
  const std::vector<std::string> changes = {"mesh.pp=3", "train.batch=4", "train.micro_batch=1"};
  const spec::RunFile run = spec::parse_run_file(file, changes);
  const std::string merged = "backward-weight is merged into backward\n";
  EXPECT_THAT(stages_text(run, chain, spec::resolve_mesh(run, 3), small_server(3)),
              AllOf(ContainsRegex("\n0 +0  block0 .* 4 KiB\n"), ContainsRegex("\n1 +1  block1 .* 5 KiB\n"),
                    ContainsRegex("\n2 +2  block2 .* -\n"), Not(HasSubstr(merged))));
  spec::RunFile split = run;
  split.strategy.pipeline = "zero_bubble_h1";
  EXPECT_THAT(stages_text(split, chain, spec::resolve_mesh(split, 3), small_server(3)), HasSubstr(merged));
  EXPECT_THAT(stages({"mesh.pp=2", "strategy.pipeline=zero_bubble_h1"}, 2), Not(HasSubstr(merged)));
}

TEST(StageTable, DrawsNoOrderOfMorePassesThanALineHolds) {
  const std::string text = stages({"mesh.pp=2", "train.batch=2000"}, 2);  // its bytes are those of shorter steps
  EXPECT_THAT(text, HasSubstr("h.8       103 M       100 %  1.28 s  1.53 GiB      221 MiB   768 KiB"));
  EXPECT_THAT(text,
              EndsWith("2000 micro-batches:\ntoo long to draw; herd show order draws it with fewer micro-batches\n"));
}

}  // namespace
}  // namespace herd::planner
