#include "herd/cli/finished_run.h"

#include <gtest/gtest.h>

#include "tests/convert/model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::cli {
namespace {

TEST(FindFinishedRun, FindsARunWhoseLastStepIsSaved_OnceItHasEnded) {
  TemporaryFolder root;
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"log.dir=" + root.path().string(), "log.name=mine"});
    return convert::small_run(more);
  };
  const spec::RunFile whole = run({"train.steps=5", "optimizer.lr=0.25"});
  EXPECT_FALSE(find_finished_run(whole)) << "there is no run";
  const auto checkpoint = convert::save_model(root / "mine/checkpoints", whole);  // of step 5
  EXPECT_FALSE(find_finished_run(whole)) << "its ranks have still to write the rest";
  write_text(root / "mine/run.json", R"({"ended_at":5})");
  const auto found = find_finished_run(whole);
  ASSERT_TRUE(found);
  EXPECT_NE(found->find("mine has done 5 steps"), std::string::npos) << *found;
  EXPECT_TRUE(find_finished_run(run({"train.steps=5", "optimizer.lr=0.25", "log.every=9"})));
  EXPECT_FALSE(find_finished_run(run({"train.steps=6"})));
  EXPECT_FALSE(find_finished_run(run({"train.steps=5", "checkpoint.resume=none"}))) << "a new run";
  EXPECT_ERROR(find_finished_run(run({"train.steps=5"})), Code::kBadConfig,
               "optimizer.lr: 0.25 in the run, 3e-04 in this start");
  EXPECT_ERROR(find_finished_run(run({"train.steps=4", "optimizer.lr=0.25"})), Code::kBadConfig,
               "has done 5 steps, more than train.steps = 4");
  std::filesystem::remove(checkpoint / "shard-00000.safetensors");
  EXPECT_ERROR(find_finished_run(whole), Code::kCorruptFile, "shard-00000");
}

}  // namespace
}  // namespace herd::cli
