// The same program under torchrun, Open MPI, and an environment as srun sets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>

#include "child_process.h"

namespace herd::launch {
namespace {

using testing::HasSubstr;

const std::string kBinaries = std::getenv("HERD_BINARY_DIR") ? std::getenv("HERD_BINARY_DIR") : ".";
const std::string kSources = std::getenv("HERD_SOURCE_DIR") ? std::getenv("HERD_SOURCE_DIR") : ".";
const std::string kRank = kBinaries + "/tests/launch_rank_program";

// The program's path, or "" where the machine has none: first where set-up puts it, then in PATH.
std::string program(const std::string& name) {
  std::string path = kSources + "/.venv/bin/" + name;
  if (std::filesystem::exists(path)) return path;
  const std::string folders = std::getenv("PATH") ? std::getenv("PATH") : "";
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    path = folders.substr(begin, end - begin) + "/" + name;
    if (std::filesystem::exists(path)) return path;
    begin = end + 1;
  }
  return "";
}

TEST(Torchrun, RanksMeet) {
  const std::string torchrun = program("torchrun");
  if (torchrun.empty()) GTEST_SKIP() << "torchrun is not on this machine";
  ChildProcess job({torchrun, "--standalone", "--no-python", "--nproc-per-node", "2", kRank, "meet"});
  EXPECT_EQ(job.wait(90), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("rank 1 of 2 on node 0 met by torchrun: sum 10"));
}

const std::string kAllReduce = kBinaries + "/examples/all_reduce";  // prints what [1, 2, 3] + [1, 0, 1] is

void expect_sums(const std::vector<std::string>& command, int seconds) {
  ChildProcess job(command);
  EXPECT_EQ(job.wait(seconds), 0) << job.output();
  for (const char* rank : {"rank 0", "rank 1"})
    EXPECT_THAT(job.output(), HasSubstr(std::string(rank) + " of 2 has [2, 2, 4]"));
}

TEST(Torchrun, StartsWhatCommunicates) {
  const std::string torchrun = program("torchrun");
  if (torchrun.empty()) GTEST_SKIP() << "torchrun is not on this machine";
  expect_sums({torchrun, "--standalone", "--no-python", "--nproc-per-node", "2", kAllReduce}, 90);
}

TEST(OpenMpi, StartsWhatCommunicates) {
  const std::string mpirun = program("mpirun");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun is not on this machine";
  expect_sums({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", kAllReduce}, 60);
}

TEST(OpenMpi, RanksMeet) {
  const std::string mpirun = program("mpirun");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun is not on this machine";
  ChildProcess job({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "4", kRank, "meet"});
  EXPECT_EQ(job.wait(60), 0) << job.output();
  EXPECT_THAT(job.output(), HasSubstr("rank 3 of 4 on node 0 met by mpirun: sum 60"));
}

std::map<std::string, std::string> slurm_task(int rank) {
  const std::string number = std::to_string(rank);
  return {{"SLURM_JOB_ID", std::to_string(getpid())},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", number},
          {"SLURM_NTASKS", "2"},
          {"SLURM_LOCALID", number},
          {"SLURM_NODEID", "0"},
          {"SLURM_NNODES", "1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2"}};
}

TEST(Slurm, RanksMeet) {
  ChildProcess second({kRank, "meet"}, slurm_task(1)), first({kRank, "meet"}, slurm_task(0));
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_THAT(second.output(), HasSubstr("rank 1 of 2 on node 0 met by srun: sum 10"));
}

TEST(Slurm, StartsWhatCommunicates) {
  ChildProcess second({kAllReduce}, slurm_task(1)), first({kAllReduce}, slurm_task(0));
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_THAT(first.output(), HasSubstr("rank 0 of 2 has [2, 2, 4]"));
  EXPECT_THAT(second.output(), HasSubstr("rank 1 of 2 has [2, 2, 4]"));
}

TEST(Slurm, ARankWithoutItsSizeIsRefused) {
  auto half = slurm_task(1);
  half["SLURM_NTASKS"] = "";
  ChildProcess rank({kRank, "meet"}, half);
  EXPECT_EQ(rank.wait(), 1);
  EXPECT_THAT(rank.output(), HasSubstr("SLURM_PROCID=1 is set, but SLURM_NTASKS is not"));
}

}  // namespace
}  // namespace herd::launch
