#include "herd/cli/trainer_process.h"

#include <gtest/gtest.h>

#include "herd/launch/launcher.h"
#include "tests/support/expect_error.h"

namespace herd::cli {
namespace {

TEST(TrainerProcess, CountsTheRanksOfAMesh_AsFarAsThereAreSome) {
  spec::RunFile run;
  run.mesh.fsdp = 8;
  run.mesh.tp = 4;
  EXPECT_EQ(ranks_of_mesh(run), 32);
  run.mesh.dp = run.mesh.fsdp = run.mesh.tp = run.mesh.pp = run.mesh.cp = 1'000'000;
  EXPECT_ERROR(ranks_of_mesh(run), Code::kBadConfig, "at most 1000000, but 1000000 * 1000000 is more", "fix:");
  run.mesh.dp = 1 << 16;
  run.mesh.fsdp = 1 << 16;  // 2^32, which an int holds as 0
  run.mesh.tp = run.mesh.pp = run.mesh.cp = 1;
  EXPECT_ERROR(ranks_of_mesh(run), Code::kBadConfig, "65536 * 65536 is more", "fix:");
}

TEST(TrainerProcess, CountsTheRanksOfAllNodes) {
  EXPECT_EQ(launch::ranks_of_job(8, 125'000), 1'000'000);
  EXPECT_ERROR(launch::ranks_of_job(65536, 65536), Code::kBadConfig, "65536 ranks a node * 65536 nodes = 4294967296",
               "fix:");
}

}  // namespace
}  // namespace herd::cli
