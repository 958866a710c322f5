#include "herd/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd::launch {
namespace {

using testing::HasSubstr;

// The message of the kBadConfig that parsing throws.
std::string refusal(const Variables& variables) {
  try {
    parse_environment(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  ADD_FAILURE() << "nothing thrown";
  return "";
}

Variables herd_run() {
  return {{"HERD_RANK", "5"},       {"HERD_SIZE", "8"},      {"HERD_LOCAL_RANK", "1"},
          {"HERD_LOCAL_SIZE", "4"}, {"HERD_NODE_RANK", "1"}, {"HERD_NUM_NODES", "2"},
          {"HERD_JOB_ID", "j"},     {"HERD_TOKEN", "t"},     {"HERD_RENDEZVOUS", "host:1234"},
          {"HERD_RESTART", "2"},    {"HERD_THREADS", "3"},   {"HERD_LAUNCH", "once"}};
}
Variables torchrun() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "1"},
          {"GROUP_RANK", "0"},
          {"GROUP_WORLD_SIZE", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "1"}};
}
Variables open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_NAMESPACE", "1234"}};
}
Variables srun() {
  return {{"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "6"},
          {"SLURM_NTASKS", "7"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "3"},
          {"SLURM_NNODES", "4"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
          {"SLURM_JOB_ID", "70001"},
          {"SLURM_STEP_NODELIST", "cn[007-009,12]"},
          {"HERD_TOKEN", "t"}};
}
Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(Environment, IsARankAloneWithoutALauncher) {
  const Environment env = parse_environment({{"PATH", "/bin"}});
  EXPECT_EQ(env.source, "alone");
  EXPECT_EQ(env.size, 1);
}

TEST(Environment, ReadsWhatAlgorithmsAreChosenOn) {
  const Environment env = parse_environment({{"HERD_TUNING", "a.tuning"}, {"HERD_TOPOLOGY", "torus:2x2x2"}});
  EXPECT_EQ(env.tuning_file, "a.tuning");
  EXPECT_EQ(env.topology, "torus:2x2x2");
}

TEST(Environment, SettingsAreThoseOfNoLauncher) {
  const Environment env = parse_settings({{"RANK", "1"},
                                          {"WORLD_SIZE", "2"},
                                          {"MASTER_ADDR", "node0"},
                                          {"MASTER_PORT", "29500"},
                                          {"HERD_TOKEN", "t"},
                                          {"HERD_TRANSPORT", "tcp"}});
  EXPECT_EQ(env.size, 1);
  EXPECT_EQ(env.rendezvous, "node0:29500");
  EXPECT_EQ(env.token, "t");
  EXPECT_EQ(env.transport, "tcp");
  EXPECT_EQ(parse_settings({{"MASTER_ADDR", "node0"}, {"HERD_RENDEZVOUS", "a:1"}}).rendezvous, "a:1");
  EXPECT_EQ(parse_settings({}).rendezvous, "");
}

TEST(Environment, ReadsHerdRun) {
  const Environment env = parse_environment(herd_run());
  EXPECT_EQ(env.source, "herd run");
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_size, 4);
  EXPECT_EQ(env.node_rank, 1);
  EXPECT_EQ(env.num_nodes, 2);
  EXPECT_EQ(env.rendezvous, "host:1234");
  EXPECT_EQ(env.token, "t");
  EXPECT_EQ(env.num_restarts, 2);
  EXPECT_EQ(env.launch_id, "once");
  EXPECT_EQ(env.threads, 3);
}

TEST(Environment, UnderTorchrunMeetsByJobAndNotOnMasterPort) {
  const Environment env = parse_environment(torchrun());
  EXPECT_EQ(env.source, "torchrun");
  EXPECT_EQ(env.rank, 1);
  EXPECT_EQ(env.rendezvous, "");
  EXPECT_EQ(env.job_id, "torchrun-none-29500-1");
  EXPECT_EQ(env.num_restarts, 1);
  EXPECT_EQ(env.launch_id, "torchrun-none-29500") << "the same at each restart";
}

TEST(Environment, UnderTorchrunOnTwoNodesMeetsNextToMasterPort) {
  Variables two = with(with(with(torchrun(), "WORLD_SIZE", "4"), "GROUP_WORLD_SIZE", "2"), "HERD_TOKEN", "t");
  EXPECT_EQ(parse_environment(two).rendezvous, "localhost:29501");
  two.erase("HERD_TOKEN");
  EXPECT_THAT(refusal(two), HasSubstr("HERD_TOKEN"));
}

TEST(Environment, ReadsOpenMpiOnOneHostWithoutAnAddress) {
  const Environment env = parse_environment(open_mpi());
  EXPECT_EQ(env.source, "mpirun");
  EXPECT_EQ(env.rank, 3);
  EXPECT_EQ(env.num_nodes, 1);
  EXPECT_EQ(env.job_id, "mpirun-1234");
}

TEST(Environment, OpenMpiOnSeveralHostsAsksForAnAddress) {
  EXPECT_THAT(refusal(with(open_mpi(), "OMPI_COMM_WORLD_SIZE", "8")), HasSubstr("fix: HERD_RENDEZVOUS=HOST:PORT"));
}

TEST(Environment, ReadsSlurmsTasksAndFirstHost) {
  const Environment env = parse_environment(srun());
  EXPECT_EQ(env.source, "srun");
  EXPECT_EQ(env.rank, 6);
  EXPECT_EQ(env.local_size, 1);
  EXPECT_EQ(env.node_rank, 3);
  EXPECT_EQ(env.rendezvous, "cn007:20001");
}

TEST(Environment, IgnoresSlurmsBatchScriptWhichIsNoStep) {
  Variables batch = srun();
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(parse_environment(batch).source, "alone");
}

TEST(Environment, TheInnerLauncherWins) {
  Variables nested = srun();
  nested.merge(torchrun());
  EXPECT_EQ(parse_environment(nested).source, "torchrun");
  nested.merge(herd_run());
  EXPECT_EQ(parse_environment(nested).source, "herd run");
}

TEST(Environment, NamesTheMissingHalf) {
  for (const char* name : {"HERD_RANK", "HERD_SIZE", "HERD_LOCAL_RANK", "HERD_LOCAL_SIZE", "HERD_TOKEN",
                           "HERD_RENDEZVOUS", "HERD_JOB_ID"}) {
    Variables half = herd_run();
    half.erase(name);
    EXPECT_THAT(refusal(half), HasSubstr(name));
  }
  EXPECT_THAT(refusal({{"RANK", "0"}}), HasSubstr("RANK=0 is set, but WORLD_SIZE is not"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), HasSubstr("WORLD_SIZE=2 is set, but RANK is not"));
}

TEST(Environment, NamesWhatContradicts) {
  EXPECT_THAT(refusal(with(herd_run(), "HERD_RANK", "8")), HasSubstr("HERD_RANK=8 must be below HERD_SIZE=8"));
  EXPECT_THAT(refusal(with(herd_run(), "HERD_LOCAL_RANK", "4")), HasSubstr("HERD_LOCAL_RANK=4"));
  EXPECT_THAT(refusal(with(herd_run(), "HERD_NODE_RANK", "2")), HasSubstr("HERD_NODE_RANK=2"));
  EXPECT_THAT(refusal(with(herd_run(), "HERD_LOCAL_SIZE", "9")), HasSubstr("9 ranks on this node"));
  EXPECT_THAT(refusal(with(torchrun(), "WORLD_SIZE", "4")), HasSubstr("one node with 2 ranks"));
  EXPECT_THAT(refusal(with(herd_run(), "HERD_SIZE", "2x")), HasSubstr("HERD_SIZE=\"2x\""));
  EXPECT_THAT(refusal(with(herd_run(), "HERD_SIZE", "-2")), HasSubstr("HERD_SIZE=\"-2\""));
  EXPECT_THAT(refusal(with(srun(), "SLURM_STEP_TASKS_PER_NODE", "2(x")), HasSubstr("tasks of node 3"));
}

TEST(Environment, ReadsTheThreadsOfOpenMp) {
  EXPECT_EQ(openmp_threads({}), 0);
  for (const auto& [text, threads] :
       std::map<std::string, int>{{"", 0}, {" ", 0}, {"3", 3}, {"4,2", 4}, {" 4 , 2 ", 4}})
    EXPECT_EQ(openmp_threads({{"OMP_NUM_THREADS", text}}), threads) << text;
  for (const char* wrong : {"all", "0", "1.5", "-1", "4,", ",4", "4,x", "4 2", "99999999999"})
    EXPECT_THROW(openmp_threads({{"OMP_NUM_THREADS", wrong}}), Error) << wrong;
}

TEST(Environment, TellsALauncherThatStartedSeveralRanks) {
  EXPECT_EQ(launcher_of_several({}), "");
  EXPECT_EQ(launcher_of_several(torchrun()), "torchrun has started this process as rank 1 of 2 (RANK=1, WORLD_SIZE=2)");
  EXPECT_THAT(launcher_of_several(herd_run()), HasSubstr("herd run has started this process as rank 5 of 8"));
  EXPECT_THAT(launcher_of_several(open_mpi()), HasSubstr("mpirun has started this process as rank 3 of 4"));
  EXPECT_THAT(launcher_of_several(srun()), HasSubstr("srun has started this process as rank 6 of 7"));
  Variables one = torchrun(), shell = srun();
  one["WORLD_SIZE"] = "1";
  shell["SLURM_STEP_NUM_TASKS"] = "1";
  EXPECT_EQ(launcher_of_several(one), "");
  EXPECT_EQ(launcher_of_several(shell), "") << "a shell of salloc";
}

}  // namespace
}  // namespace herd::launch
