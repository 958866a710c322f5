#include "herd/planner/stage_table.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "herd/spec/run_file.h"

namespace herd::planner {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::StartsWith;

std::string stages(const std::vector<std::string>& changes, int ranks) {
  std::vector<std::string> all = {"train.micro_batch=1", "train.batch=8"};  // a later one counts
  all.insert(all.end(), changes.begin(), changes.end());
  const std::string file = std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/gpt-162m.toml";
  const spec::RunFile run = spec::parse_run_file(file, all);
  return stages_text(run, spec::resolve_mesh(run, ranks));
}

TEST(StageTable, SaysThatThereIsNoPipeline_WhereThereIsNone) { EXPECT_EQ(stages({}, 1), "no pipeline: mesh.pp = 1\n"); }

TEST(StageTable, HoldsEachBlockOnce_AndComparesTheArithmeticOfStages) {
  EXPECT_THAT(stages({"mesh.pp=2"}, 2),
              StartsWith("rank  stage  blocks            parameters  arithmetic\n"
                         "0         0  embedding to h.8       103 M       100 %\n"  // 162 M in both
                         "1         1  h.9 to head           59.9 M        92 %\n"
                         "arithmetic: relative to the stage that has most, which sets the pace\n\n"
                         "1f1b with stages that take equally long, 8 micro-batches:\nrank 0  F0 F1 "));
}

TEST(StageTable, HasARowForEachStageOfARank) {
  EXPECT_THAT(stages({"mesh.pp=2", "strategy.pipeline=interleaved"}, 2),
              AllOf(ContainsRegex("\n0 +0  embedding to h.4 .*\n0 +2  h.8 to h.11 "),
                    ContainsRegex("\n1 +1  h.5 to h.7 .*\n1 +3  head ")));
}

TEST(StageTable, DrawsNoOrderOfMorePassesThanALineHolds) {
  EXPECT_THAT(stages({"mesh.pp=2", "train.batch=300"}, 2),
              EndsWith("300 micro-batches:\ntoo long to draw; herd show order draws it with fewer micro-batches\n"));
}

}  // namespace
}  // namespace herd::planner
