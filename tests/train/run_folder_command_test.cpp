// herd train in folders that are empty, its own, owned by another job, or another run's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>
#include <thread>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/metrics.h"
#include "herd/storage/run_folder.h"

namespace herd::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::vector<std::string> kShort = {"train.steps=4", "train.eval_every=0", "checkpoint.every=2"};

std::vector<std::string> with(std::vector<std::string> overrides, const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

std::vector<int64_t> steps_of(const std::vector<FoundCheckpoint>& checkpoints) {
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& one : checkpoints) steps.push_back(one.step);
  return steps;
}

std::vector<int64_t> metric_steps(const fs::path& run) {
  std::vector<int64_t> steps;
  for (const StepMetrics& one : read_metrics(run / "metrics.jsonl")) steps.push_back(one.step);
  return steps;
}

void kill_rank(int rank, const std::string& name) {
  if (const pid_t pid = Command::trainer_of_rank(rank, "log.name=" + name); pid > 0) kill(pid, SIGKILL);
}

TEST(RunFolderCommand, ASecondJobOfTheSameNameIsRefused_NamingTheFirst_WhichGoesOn) {
  RunFolder folder;
  const std::vector<std::string> endless = {"train.steps=100000", "train.eval_every=0", "checkpoint.every=5"};
  Command first = folder.start("run", 2, endless);
  ASSERT_TRUE(first.wait_for("step 2/")) << first.output();
  const std::string config = slurp(folder.root / "run/config.toml");
  Command second(folder.command("run", 1, {"checkpoint.resume=none", "checkpoint.used_folder=set_aside"}),
                 folder.root / "second.output");
  EXPECT_EQ(second.wait(), 2) << second.output();
  EXPECT_THAT(second.output(),
              AllOf(HasSubstr("one job at a time owns a run's folder"), HasSubstr("is owned by process"),
                    HasSubstr("on host"), HasSubstr("fix: another log.name")));
  Command alone({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd-trainer", "train", folder.root / "run.toml",
                 "log.name=run", "checkpoint.resume=none", "checkpoint.used_folder=set_aside"},
                folder.root / "alone.output");
  EXPECT_EQ(alone.wait(), 2) << "a trainer that no launcher started";
  EXPECT_THAT(alone.output(), HasSubstr("is owned by process"));
  EXPECT_EQ(slurp(folder.root / "run/config.toml"), config);
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait(), 0) << first.output();
  const auto steps = metric_steps(folder.root / "run");
  EXPECT_EQ(steps.front(), 1);
  EXPECT_EQ(steps.size(), static_cast<size_t>(steps.back()));
  EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").front().step, steps.back());
}

// Processes that keep every core busy for as long as the object exists.
class Load {
 public:
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  Load() {
    for (unsigned core = 0; core < 2 * std::thread::hardware_concurrency(); ++core) {
      const pid_t pid = fork();
      if (pid == 0) {
        for (volatile int turns = 0;;) turns = turns + 1;
      }
      pids_.push_back(pid);
    }
  }
  ~Load() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
  }

 private:
  std::vector<pid_t> pids_;
};

// The next start comes at once: ranks may not have heard yet that their launcher is gone, or take a while to end.
TEST(RunFolderCommand, AKilledJobLeavesNoLockBehind) {
  RunFolder folder;
  const int kills = std::getenv("HERD_FULL_TESTS") ? 50 : 3;
  for (int round = 0; round < kills; ++round) {
    std::optional<Load> load;  // a start without it comes sooner, and an end with it later
    if (round % 2 == 1) load.emplace();
    Command job = folder.start("run", 2, {"train.steps=100000", "train.eval_every=0", "checkpoint.every=50"});
    ASSERT_TRUE(job.wait_for("/100000", 240)) << "round " << round << ": " << job.output();
    kill(job.pid(), SIGKILL);
    EXPECT_EQ(job.wait(), 128 + SIGKILL);
  }
  for (int i = 0; i < 3000 && !Command::processes_with(folder.root.string()).empty(); ++i) usleep(20'000);
}

TEST(RunFolderCommand, ANewRunInAUsedFolderIsRefused_OrSetsTheOldOneAside) {
  RunFolder folder;
  const fs::path run = folder.root / "run";
  ASSERT_EQ(folder.train("run", 2, kShort).status, 0);
  const std::string id = read_run_record(run).run;
  const std::string config = slurp(run / "config.toml"), metrics = slurp(run / "metrics.jsonl");
  EXPECT_THAT(metrics, HasSubstr("\"run\":\"" + id + "\""));
  EXPECT_EQ(run_of_checkpoint(run / "checkpoints" / checkpoint_folder_name(4)), id);
  const std::vector<std::string> fresh = {"train.steps=3", "train.eval_every=0", "checkpoint.every=1",
                                          "checkpoint.resume=none"};
  const Ended refused = folder.train("run", 2, fresh);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("starts a new run"), HasSubstr("run " + id), HasSubstr("fix:")));
  EXPECT_EQ(slurp(run / "config.toml"), config);
  EXPECT_EQ(slurp(run / "metrics.jsonl"), metrics);

  const Ended set_aside = folder.train("run", 2, with(fresh, {"checkpoint.used_folder=set_aside"}));
  ASSERT_EQ(set_aside.status, 0) << set_aside.output;
  const std::string second = read_run_record(run).run;
  EXPECT_NE(second, id);
  EXPECT_EQ(steps_of(list_checkpoints(run / "checkpoints")), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(steps_of(list_checkpoints(run / "set_aside" / id / "checkpoints")), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(slurp(run / "set_aside" / id / "metrics.jsonl"), metrics);
  const Ended resumed = folder.train("run", 2, {"train.steps=5", "train.eval_every=0", "checkpoint.every=0"});
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("step-00000003, step 3"));
  EXPECT_EQ(read_run_record(run).run, second);
  EXPECT_EQ(metric_steps(run), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(RunFolderCommand, AnOlderCheckpointOfTheSameFolderBeginsANewRun_AndTheOldOneIsSetAside) {
  RunFolder folder;
  const fs::path run = folder.root / "run";
  ASSERT_EQ(folder.train("run", 1, kShort).status, 0);
  const std::string id = read_run_record(run).run;
  const std::string older = run / "checkpoints" / checkpoint_folder_name(2);
  EXPECT_EQ(folder.train("run", 1, with(kShort, {"checkpoint.resume=" + older})).status, 2);
  const Ended back = folder.train(
      "run", 1, with(kShort, {"checkpoint.resume=" + older, "checkpoint.used_folder=set_aside", "train.steps=3"}));
  ASSERT_EQ(back.status, 0) << back.output;
  EXPECT_EQ(steps_of(list_checkpoints(run / "checkpoints")), (std::vector<int64_t>{3}));
  EXPECT_EQ(steps_of(list_checkpoints(run / "set_aside" / id / "checkpoints")), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(read_run_record(run).began_from, run / "set_aside" / id / "checkpoints" / checkpoint_folder_name(2));
}

// What storage does with such folders, hostile_run_folder_test.cpp draws at random.
TEST(RunFolderCommand, AHostileFolderChangesNothingOutsideIt_AndHoldsNobodyUp) {
  RunFolder folder;
  const fs::path run = folder.root / "run", victim = folder.root / "victim";
  fs::create_directories(victim / "checkpoints");
  for (const char* name : {"rank0.log", "report.html", "manifest.json"}) std::ofstream(victim / name) << "mine";
  const auto refuses = [&](const std::string& what, const std::string& words) {
    const Ended ended = folder.train("run", 1, with(kShort, {"checkpoint.used_folder=set_aside"}));
    EXPECT_NE(ended.status, 0) << what;
    EXPECT_THAT(ended.output, AllOf(HasSubstr(words), HasSubstr("fix:"))) << what;
    fs::remove_all(run);
    fs::create_directories(run);
  };
  fs::create_directories(run);
  fs::create_directory_symlink(victim, run / "logs");
  refuses("logs", "run/logs");
  fs::create_symlink(victim / "rank0.log", run / "lock");
  refuses("lock", "run/lock");
  ASSERT_EQ(mkfifo((run / "run.json").c_str(), 0600), 0);
  refuses("a pipe", "run.json is a file of the run");
  std::ofstream(run / "run.json") << R"({"run":"../../victim"})";
  refuses("an id", "a run's id is 1 to 64 of");

  fs::create_directories(run / "checkpoints");
  fs::create_directory_symlink(victim, run / "checkpoints/step-00000001");
  fs::create_symlink(victim / "report.html", run / "report.html");
  EXPECT_EQ(folder.train("run", 1, with(kShort, {"checkpoint.resume=none", "checkpoint.keep=1"})).status, 0);
  EXPECT_EQ(steps_of(list_checkpoints(run / "checkpoints")), std::vector<int64_t>{4});
  for (const char* name : {"rank0.log", "report.html", "manifest.json"}) EXPECT_EQ(slurp(victim / name), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(victim), {}), 4);
}

TEST(RunFolderCommand, ARefusedStartHasWrittenNothing) {
  RunFolder folder;
  const fs::path run = folder.root / "run";
  ASSERT_EQ(folder.train("run", 2, kShort).status, 0);
  std::map<std::string, std::string> before;
  for (const char* name : {"config.toml", "cluster.toml", "run.json", "metrics.jsonl", "report.html"})
    before[name] = slurp(run / name);
  const Ended refused = folder.train("run", 2, with(kShort, {"model.width=64", "train.steps=8"}));
  EXPECT_NE(refused.status, 0) << "a checkpoint of another model";
  for (const auto& [name, text] : before) EXPECT_EQ(slurp(run / name), text) << name;
  EXPECT_THAT(slurp(run / "logs/rank0.log"), HasSubstr("step 4/4")) << "of the start before";
}

TEST(RunFolderCommand, ARestartGoesOnAtTheRunsOwnNewestCheckpoint_WhateverResumeSays) {
  RunFolder folder;
  ASSERT_EQ(folder.train("other", 1, with(kShort, {"checkpoint.every=1", "train.steps=2"})).status, 0);
  ASSERT_EQ(folder.train("old", 1, kShort).status, 0);
  const std::string other = folder.root / "other/checkpoints" / checkpoint_folder_name(1);
  for (const std::string& resume : {std::string("none"), other}) {
    const std::string name = resume == "none" ? "fresh" : "old";
    auto words = folder.command(name, 2,
                                {"train.steps=100000", "train.eval_every=0", "checkpoint.every=3",
                                 "checkpoint.used_folder=set_aside", "checkpoint.resume=" + resume});
    words.insert(words.end(), {"--max-restarts", "1"});
    Command job(words, folder.root / (name + ".output"));
    ASSERT_TRUE(job.wait_for("step 8/")) << job.output();
    kill_rank(1, name);
    ASSERT_TRUE(job.wait_for("starting again")) << job.output();
    const size_t before = job.output().find("starting again");
    ASSERT_TRUE(job.wait_for("/100000", 120, before)) << job.output();
    kill(job.pid(), SIGTERM);  // after a step of its own
    EXPECT_EQ(job.wait(), 0) << job.output();
    const std::string output = job.output(), restarted = output.substr(before);
    EXPECT_THAT(restarted, AllOf(HasSubstr("resumed from " + (folder.root / name / "checkpoints/step-").string()),
                                 Not(HasSubstr("step 1/"))))
        << output;
    const auto steps = metric_steps(folder.root / name);
    EXPECT_GE(steps.back(), 4);  // a step after the checkpoint of step 3 at least
    EXPECT_EQ(static_cast<int64_t>(steps.size()), steps.back() - (resume == "none" ? 0 : 1));
  }
}

}  // namespace
}  // namespace herd::train
