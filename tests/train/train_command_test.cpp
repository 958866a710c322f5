// herd train from end to end, with real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

std::vector<double> losses(const fs::path& run) {
  std::vector<double> found;
  for (const StepMetrics& step : read_metrics(run / "metrics.jsonl")) found.push_back(step.loss);
  return found;
}

void expect_same_losses(const fs::path& a, const fs::path& b, double tolerance) {
  const auto x = losses(a), y = losses(b);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_LT(std::abs(x[i] - y[i]) / x[i], tolerance) << "step " << i + 1;
}

TEST(TrainCommand, GivesTheLossesOfOneRank_WithTwoRanksAndOtherMicroBatches) {
  RunFolder folder;
  const Ended one = folder.train("one", 1, {"train.micro_batch=6", "model.dropout=0.1"});
  ASSERT_EQ(one.status, 0) << one.output;
  const Ended two = folder.train("two", 2, {"train.micro_batch=2", "model.dropout=0.1"});
  ASSERT_EQ(two.status, 0) << two.output;
  EXPECT_EQ(losses(folder.root / "one").size(), 12u);
  expect_same_losses(folder.root / "one", folder.root / "two", 1e-6);
}

// Processes measure each block before they train; ranks as threads do not.
TEST(TrainCommand, GivesTheLossesOfOneRank_WhereRanksShareTokensOrHaveExperts_AndResumesInAnotherLayout) {
  const std::string rate = "optimizer.schedule=constant";  // which does not hang on train.steps
  const std::vector<std::vector<std::string>> kinds = {{rate},
                                                       {rate, "model.kind=moe", "model.experts=4", "model.top_k=2"}};
  const std::vector<std::string> layouts[] = {{"mesh.cp=2", "mesh.pp=2"}, {"mesh.pp=2", "strategy.zero=3"}};
  for (size_t i = 0; i < kinds.size(); ++i) {
    RunFolder folder;
    ASSERT_EQ(folder.train("one", 1, kinds[i]).status, 0);
    std::vector<std::string> half = kinds[i];
    half.insert(half.end(), layouts[i].begin(), layouts[i].end());
    half.emplace_back("train.steps=6");
    const Ended begun = folder.train("shared", 4, half);
    ASSERT_EQ(begun.status, 0) << begun.output;
    std::vector<std::string> rest = kinds[i];
    rest.emplace_back("strategy.offload=nvme");
    const Ended resumed = folder.train("shared", 3, rest);
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
    const std::vector<double> one = losses(folder.root / "one"), shared = losses(folder.root / "shared");
    ASSERT_EQ(shared.size(), 12u);
    for (size_t step = 0; step < 12; ++step) EXPECT_NEAR(shared[step], one[step], 1e-5) << step;
  }
}

TEST(TrainCommand, GivesTheSameBits_WhenActivationsAreComputedAgain) {
  RunFolder folder;
  const std::vector<std::string> all = {"model.dropout=0.1", "model.layers=3", "train.eval_every=0"};
  ASSERT_EQ(folder.train("none", 2, all).status, 0);
  for (const std::string how : {"full", "every:2"}) {
    std::vector<std::string> overrides = all;
    overrides.push_back("strategy.recompute=" + how);
    const Ended run = folder.train(how, 2, overrides);
    ASSERT_EQ(run.status, 0) << run.output;
    EXPECT_EQ(losses(folder.root / "none"), losses(folder.root / how)) << how;
  }
}

TEST(TrainCommand, PredictsWhatHerdPlanSays_OnTheClusterThatItMeasured) {
  RunFolder folder;
  const Ended run = folder.train("run", 2, {"strategy.recompute=sqrt", "train.eval_every=0", "train.threads=1"});
  ASSERT_EQ(run.status, 0) << run.output;
  const StepMetrics step = read_metrics(folder.root / "run/metrics.jsonl").front();
  Command plan({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "plan", folder.root / "run/config.toml", "--ranks",
                "2", "--cluster", folder.root / "run/cluster.toml", "--json"},
               folder.root / "plan.output");
  ASSERT_EQ(plan.wait(), 0) << plan.output();
  const auto json = nlohmann::json::parse(plan.output());
  EXPECT_EQ(json["method"], "simulated");
  EXPECT_EQ(json["device_bytes"]["total"].get<double>(), static_cast<double>(step.predicted_device_bytes_peak));
  EXPECT_NEAR(json["step_us"].get<double>() / 1e3, step.predicted_step_ms, 1e-6 * step.predicted_step_ms);
}

TEST(TrainCommand, SaysAtTheEndWhatWasPredictedAndWhatItTook) {
  RunFolder folder;
  const Ended run = folder.train("run", 2, {"train.eval_every=0"});
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, testing::ContainsRegex("predicted [0-9.]+ [mu]?s a step, measured [0-9.]+ [mu]?s, [0-9]+ %"));
  const std::vector<StepMetrics> steps = read_metrics(folder.root / "run/metrics.jsonl");
  for (const StepMetrics& step : steps) EXPECT_EQ(step.predicted_step_ms, steps[0].predicted_step_ms);
  EXPECT_THAT(read_text(folder.root / "run/logs/rank1.memory.txt"), HasSubstr("\n  activations "));
}

TEST(TrainCommand, ContinuesWithTheSameBits_WhenResumed) {
  RunFolder folder;
  ASSERT_EQ(folder.train("whole", 2).status, 0);
  ASSERT_EQ(folder.train("again", 2).status, 0);
  fs::remove_all(folder.root / "again/checkpoints" / checkpoint_folder_name(12));
  const Ended resumed = folder.train("again", 2);
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
  EXPECT_THAT(resumed.output, HasSubstr("step 6"));
  EXPECT_EQ(losses(folder.root / "whole"), losses(folder.root / "again"));
  CheckpointReader a(folder.root / "whole/checkpoints" / checkpoint_folder_name(12));
  CheckpointReader b(folder.root / "again/checkpoints" / checkpoint_folder_name(12));
  for (const auto& [name, tensor] : a.manifest().tensors)
    EXPECT_EQ(tensor.pieces[0].checksum, b.manifest().tensors.at(name).pieces[0].checksum) << name;
}

TEST(TrainCommand, SavesTheLastStep_WhenNoneBetweenIsAskedFor) {
  RunFolder folder;
  const Ended run = folder.train("run", 2, {"train.steps=3", "checkpoint.every=0"});
  ASSERT_EQ(run.status, 0) << run.output;
  const auto checkpoints = list_checkpoints(folder.root / "run/checkpoints");
  ASSERT_EQ(checkpoints.size(), 1u);
  EXPECT_EQ(CheckpointReader(checkpoints[0].folder).manifest().step, 3);
  ASSERT_EQ(folder.train("none", 1, {"train.steps=3", "checkpoint.every=-1"}).status, 0);
  EXPECT_TRUE(list_checkpoints(folder.root / "none/checkpoints").empty());
}

TEST(TrainCommand, GoesOnAtTheNextSample_WhenResumedWithAnotherBatch) {
  RunFolder folder;
  const std::vector<std::string> still = {"optimizer.lr=1e-12", "train.eval_every=0", "checkpoint.every=0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), still.begin(), still.end());
    return more;
  };
  ASSERT_EQ(folder.train("whole", 1, with({"train.steps=8"})).status, 0);
  ASSERT_EQ(folder.train("run", 1, with({"train.steps=6"})).status, 0);
  const Ended resumed = folder.train("run", 1, with({"train.steps=7", "train.batch=12"}));
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  const auto whole = losses(folder.root / "whole"), run = losses(folder.root / "run");
  ASSERT_EQ(run.size(), 7u);
  EXPECT_NEAR(run[6], (whole[6] + whole[7]) / 2, 1e-6) << "step 7 reads samples 36 to 47";
  EXPECT_EQ(CheckpointReader(folder.root / "run/checkpoints" / checkpoint_folder_name(7)).manifest().samples, 48);
}

std::string field_of_manifest(const RunFolder& folder, const std::string& name) {
  return nlohmann::json::parse(slurp(folder.root / "run/run.json"))["machine"][name];
}

TEST(TrainCommand, SavesAndEndsCleanly_WhenAskedToStop) {
  RunFolder folder;
  Command run = folder.start("run", 2, {"train.steps=100000", "checkpoint.every=100000", "train.eval_every=0"});
  ASSERT_TRUE(run.wait_for("step 3/")) << run.output();
  const std::string start = field_of_manifest(folder, "start");
  usleep(1'100'000);
  kill(run.pid(), SIGTERM);
  run.wait();
  EXPECT_THAT(run.output(), HasSubstr("stopped by a signal after step"));
  EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").size(), 1u);
  EXPECT_EQ(field_of_manifest(folder, "start"), start) << "the start, not the end";
  EXPECT_TRUE(Command::processes_with(folder.root.string()).empty());
}

TEST(TrainCommand, SavesAndEndsCleanly_WhicheverSignalAsks) {
  for (const int signal : {SIGINT, SIGHUP, SIGUSR1}) {
    RunFolder folder;
    Command run = folder.start("run", 2, {"train.steps=100000", "checkpoint.every=100000", "train.eval_every=0"});
    ASSERT_TRUE(run.wait_for("step 2/")) << run.output();
    kill(run.pid(), signal);
    EXPECT_EQ(run.wait(), 0) << run.output();
    EXPECT_THAT(run.output(), HasSubstr("stopped by a signal after step"));
    EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").size(), 1u) << strsignal(signal);
  }
}

TEST(TrainCommand, SavesAndEndsCleanly_WhenTimeoutSaysItTwice) {
  RunFolder folder;
  auto words = folder.command("run", 2, {"train.steps=100000", "checkpoint.every=100000", "train.eval_every=0"});
  words.insert(words.begin(), {"/usr/bin/timeout", "1000"});
  Command run(words, folder.root / "output");
  ASSERT_TRUE(run.wait_for("step 2/")) << run.output();
  kill(run.pid(), SIGTERM);  // as its own time being over: to its child, then to its group
  EXPECT_EQ(run.wait(), 0) << run.output();
  EXPECT_THAT(run.output(), HasSubstr("every rank ended with status 0"));
  EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").size(), 1u);
}

TEST(TrainCommand, SavesAndEndsCleanly_WhenMaxMinutesAreOver) {
  RunFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  const Ended run = folder.train(
      "run", 2, {"train.steps=100000", "checkpoint.every=100000", "train.eval_every=0", "train.max_minutes=0.1"});
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("stopped by train.max_minutes = 0.1 after step"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").size(), 1u);
}

TEST(TrainCommand, SaysWhatItDid_WhenAskedToStopBeforeTheFirstStep) {
  RunFolder folder;
  Command run = folder.start("run", 2, {"train.steps=100000", "model.width=256", "model.layers=8"});
  ASSERT_TRUE(run.wait_for("2 ranks = dp 2")) << run.output();
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.output();
  EXPECT_THAT(run.output(),
              HasSubstr("stopped by a signal before the first step: nothing was trained, nothing is saved"));
  EXPECT_TRUE(list_checkpoints(folder.root / "run/checkpoints").empty());
}

TEST(TrainCommand, TrainsToTheEnd_WhenItsReaderLeaves) {
  RunFolder folder;
  std::string line;
  for (const std::string& word : folder.command("run", 2)) line += word + " ";
  Command run({"/bin/sh", "-c", line + "2>&1 | head -3 > /dev/null"}, folder.root / "output");
  EXPECT_EQ(run.wait(), 0);
  for (int i = 0; i < 3000 && !Command::processes_with(folder.root.string()).empty(); ++i) usleep(20'000);
  EXPECT_EQ(losses(folder.root / "run").size(), 12u);
  EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").size(), 2u);
}

TEST(TrainCommand, LogsTheLearningRateThatAStepHad_WhenEarlierOnesWereSkipped) {
  RunFolder folder;
  const Ended run = folder.train("run", 1,
                                 {"strategy.precision=fp16", "optimizer.lr=30", "optimizer.schedule=linear",
                                  "optimizer.clip=0", "health.check_finite=false", "checkpoint.every=-1"});
  ASSERT_EQ(run.status, 0) << run.output;
  const auto steps = read_metrics(folder.root / "run/metrics.jsonl");
  int64_t skipped = 0;
  for (const StepMetrics& step : steps) {
    EXPECT_NEAR(step.lr, 30 * (1 - static_cast<double>(step.step - skipped) / 12), 1e-9) << "step " << step.step;
    skipped += !std::isfinite(step.grad_norm);
  }
  EXPECT_GT(skipped, 2) << "nothing was skipped, so nothing is shown";
}

TEST(TrainCommand, SavesAtOnce_WhenAskedToStopWithinALongValidation) {
  RunFolder folder;
  Command run = folder.start("run", 2, {"train.steps=100000", "train.eval_every=2", "train.eval_batches=100000000"});
  ASSERT_TRUE(run.wait_for("step 1/")) << run.output();
  usleep(500'000);
  const auto begin = std::chrono::steady_clock::now();
  kill(run.pid(), SIGTERM);
  run.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_THAT(run.output(), HasSubstr("stopped by a signal after step 2, saved"));
  EXPECT_EQ(list_checkpoints(folder.root / "run/checkpoints").size(), 1u);
  EXPECT_EQ(losses(folder.root / "run").size(), 2u);
}

TEST(TrainCommand, EndsWithTheFilesName_WhenOneOfItsFilesCannotBeWritten) {
  for (const std::string file : {"config.toml", "run.json", "report.html"}) {
    RunFolder folder;
    fs::create_directories(folder.root / "run" / file / "in the way");
    const Ended run = folder.train("run", 1, {"train.steps=2"});
    EXPECT_NE(run.status, 0) << file;
    EXPECT_THAT(run.output, HasSubstr("run/" + file));
  }
}

TEST(TrainCommand, NamesTheRankThatWasKilled_AndKeepsTheLastCheckpoint) {
  RunFolder folder;
  Command run = folder.start("run", 2, {"train.steps=100000", "checkpoint.every=10", "train.eval_every=0"});
  ASSERT_TRUE(run.wait_for("step 30/")) << run.output();
  const pid_t victim = Command::trainer_of_rank(1, folder.root.string());
  ASSERT_GT(victim, 0);
  kill(victim, SIGKILL);
  EXPECT_EQ(run.wait(), 137);
  EXPECT_THAT(run.output(), HasSubstr("rank 1"));
  EXPECT_TRUE(Command::processes_with(folder.root.string()).empty());
  std::vector<std::string> broken;
  EXPECT_TRUE(newest_whole_checkpoint(folder.root / "run/checkpoints", broken).has_value());
}

TEST(TrainCommand, NamesBlockRankAndStep_WhenAGradientIsNotFinite) {
  RunFolder folder;
  const Ended ended = folder.train("run", 2, {"optimizer.lr=1e9", "optimizer.warmup_steps=0"});
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("step "));
  EXPECT_THAT(ended.output, HasSubstr("rank "));
  EXPECT_THAT(ended.output,
              testing::ContainsRegex("first seen by .*(output|loss|gradient|weights) of (embedding|h|loss)"));
  EXPECT_NE(slurp(folder.root / "run/report.html").find("<td>ended by</td><td>kBadConfig: step 1: the norm"),
            std::string::npos);
}

TEST(TrainCommand, WritesItsReportWhileItRuns_WithAllRanksInTheTrace) {
  RunFolder folder;
  Command run = folder.start("run", 2, {"train.steps=100000", "train.eval_every=0"});
  ASSERT_TRUE(run.wait_for("step 9/")) << run.output();
  EXPECT_NE(slurp(folder.root / "run/report.html").find("<h3>Measured</h3>"), std::string::npos);
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.wait(), 0) << run.output();
  EXPECT_THAT(slurp(folder.root / "run/trace.json"), testing::AllOf(HasSubstr("\"rank 0\""), HasSubstr("\"rank 1\"")));
}

TEST(TrainCommand, PrintsStepsToTheOutput_AndNotesToTheErrors) {
  RunFolder folder;
  std::string command;
  for (const std::string& word : folder.command("run", 2)) command += word + " ";
  const std::string notes = folder.root / "notes";
  Command run({"/bin/sh", "-c", "exec " + command + " 2>" + notes}, folder.root / "steps");
  ASSERT_EQ(run.wait(), 0) << slurp(notes);
  std::istringstream lines(run.output());
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines) {
    EXPECT_THAT(line, testing::StartsWith("[0] step "));
    EXPECT_LE(line.size(), 120) << line;
  }
  EXPECT_EQ(num_lines, 12 + 2) << "steps and validations";
  EXPECT_THAT(slurp(notes), AllOf(HasSubstr("predicted: "), Not(HasSubstr("step 1/")), Not(HasSubstr("[rank 0]"))));
}

TEST(TrainCommand, ReducesByTheAlgorithmThatTheRunFileNames) {
  RunFolder folder;
  // Ranks of each stage, and copies of each shard, are fewer than all ranks, for which calibration asks for no
  // algorithm.
  const std::pair<int, std::vector<std::string>> layouts[] = {
      {2, {"comm.algorithm=ring"}},
      {4, {"comm.algorithm=ring", "mesh.pp=2"}},
      {4, {"comm.algorithm=ring", "mesh.fsdp=2", "strategy.zero=3"}}};
  for (int index = 0; const auto& [ranks, overrides] : layouts) {
    const std::string name = "run" + std::to_string(index++);
    const Ended ended = folder.train(name, ranks, overrides);
    ASSERT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(slurp(folder.root / name / "run.json"),
                testing::ContainsRegex("\"all_reduce of [0-9]+ bytes\": *\"ring\""));
  }
}

TEST(TrainCommand, RefusesAnAlgorithmThatIsUnknownOrCantServe_BeforeRanksStart) {
  RunFolder folder;
  const auto expect_refused = [&](int ranks, const std::string& algorithm, const std::string& reason) {
    const Ended ended = folder.train("refused", ranks, {"comm.algorithm=" + algorithm});
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("comm.algorithm = \"" + algorithm + "\"" + reason));
    EXPECT_FALSE(fs::exists(folder.root / "refused")) << "ranks have started";
  };
  for (const int ranks : {1, 2}) expect_refused(ranks, "rign", ": all_reduce has no algorithm of this name");
  expect_refused(2, "hierarchical_tree", " needs several hosts of several ranks");
  const Ended sharded = folder.train("refused", 2, {"comm.algorithm=ring", "strategy.zero=2"});
  EXPECT_EQ(sharded.status, 2) << sharded.output;
  EXPECT_THAT(sharded.output, HasSubstr("strategy.zero = 2 sums gradients by reduce-scatters alone"));
}

TEST(TrainCommand, ReducesOnTheTopologyThatTheRunFileNames) {
  RunFolder folder;
  const Ended ended = folder.train("run", 4, {"comm.topology=torus:2x2", "comm.algorithm=torus_2d"});
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(slurp(folder.root / "run/run.json"), HasSubstr("\"torus_2d\""));
  // A tied embedding's gradients are all-reduced too, but by pairs of ranks, which are no torus.
  const Ended stages = folder.train(
      "stages", 8, {"comm.topology=torus:2x2x2", "comm.algorithm=torus_2d", "mesh.pp=2", "model.tie_embeddings=true"});
  ASSERT_EQ(stages.status, 0) << stages.output;
  EXPECT_THAT(slurp(folder.root / "stages/run.json"), HasSubstr("\"torus_2d\""));
  const Ended other = folder.train("other", 2, {"comm.topology=torus:2x2"});
  EXPECT_EQ(other.status, 2) << other.output;
  EXPECT_THAT(other.output, HasSubstr("has 4 ranks, but the job has 2"));
}

// Stops rank 1 of a run whose deadline is 2 s.
void expect_it_waits_two_seconds_for_a_stopped_rank(Command& run, const RunFolder& folder) {
  const pid_t victim = Command::trainer_of_rank(1, folder.root.string());
  ASSERT_GT(victim, 0);
  const auto begin = std::chrono::steady_clock::now();
  kill(victim, SIGSTOP);
  EXPECT_NE(run.wait(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_THAT(run.output(), testing::ContainsRegex("waited [2-9][0-9][0-9][0-9] ms"));
}

TEST(TrainCommand, NamesTheRankThatIsStopped_WhenTheDeadlineHasPassed) {
  RunFolder folder;
  Command run =
      folder.start("run", 2, {"train.steps=100000", "comm.deadline_s=2", "train.eval_every=0", "checkpoint.every=0"});
  ASSERT_TRUE(run.wait_for("step 3/")) << run.output();
  expect_it_waits_two_seconds_for_a_stopped_rank(run, folder);
  EXPECT_THAT(run.output(), HasSubstr("rank 1"));
  EXPECT_TRUE(Command::processes_with(folder.root.string()).empty());
}

TEST(TrainCommand, KeepsItsDeadlineInAValidationToo) {
  RunFolder folder;
  Command run = folder.start("run", 2, {"comm.deadline_s=2", "train.eval_every=2", "train.eval_batches=100000000"});
  ASSERT_TRUE(run.wait_for("step 1/")) << run.output();
  sleep(1);  // the validation comes after one more step of milliseconds
  expect_it_waits_two_seconds_for_a_stopped_rank(run, folder);
  EXPECT_THAT(run.output(), HasSubstr("validation"));
}

TEST(ParityCommand, LeavesNoFolder_WhenASideFails) {
  RunFolder folder;
  setenv("TMPDIR", folder.root.c_str(), 1);
  Command parity({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "parity", folder.root / "run.toml", "--a",
                  "mesh.dp=1", "--b", "train.micro_batch=0", "train.steps=1"},
                 folder.root / "parity.output");
  EXPECT_NE(parity.wait(), 0);
  unsetenv("TMPDIR");
  EXPECT_THAT(parity.output(), HasSubstr("train.micro_batch"));
  for (const auto& entry : fs::directory_iterator(folder.root))
    EXPECT_FALSE(entry.path().filename().string().starts_with("herd-parity")) << entry.path();
}

TEST(TrainCommand, GoesOn_WhenARankWasStoppedForAMoment) {
  RunFolder folder;
  Command run =
      folder.start("run", 2, {"train.steps=100000", "train.eval_every=0", "checkpoint.every=0", "log.every=50"});
  ASSERT_TRUE(run.wait_for("step 50/")) << run.output();
  const pid_t victim = Command::trainer_of_rank(1, folder.root.string());
  ASSERT_GT(victim, 0);
  kill(victim, SIGSTOP);
  usleep(300'000);
  kill(victim, SIGCONT);
  const size_t before = run.output().size();
  usleep(500'000);
  kill(run.pid(), SIGTERM);
  run.wait();
  EXPECT_THAT(run.output().substr(before), HasSubstr("step "));
  EXPECT_THAT(run.output(), HasSubstr("stopped by a signal after step"));
  EXPECT_THAT(run.output(), testing::Not(HasSubstr("terminate called")));
}

TEST(TrainCommand, SaysWhatDoesNotFit_BeforeAnythingStarts) {
  RunFolder folder;
  const Ended ended = folder.train("run", 2, {"memory.device_budget=64KiB"});
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("memory.device_budget"));
  EXPECT_THAT(ended.output, HasSubstr("weights"));
  EXPECT_FALSE(fs::exists(folder.root / "run"));
}

TEST(TrainCommand, LooksForTheRoutingToReplay_BeforeAnythingStarts) {
  RunFolder folder;
  const std::string nowhere = folder.root / "nowhere";
  const Ended ended = folder.train("run", 2, {"model.kind=moe", "model.experts=2", "train.replay_routing=" + nowhere});
  EXPECT_EQ(ended.status, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("train.replay_routing = \"" + nowhere + "\" has no routing that was recorded"));
  EXPECT_FALSE(fs::exists(folder.root / "run"));
}

// A vocabulary of 320 in the folder `data`: plain English, so that other letters come as bytes.
void tokenize_some_text(const RunFolder& folder, const std::string& data) {
  std::ofstream text(folder.root / "text.txt");
  for (int i = 0; i < 400; ++i)
    text << "line " << i * 7919 << " says that " << i * i << " sheep graze on hill " << i % 17 << "\n";
  text.close();
  Command tokenize({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "tokenize", folder.root / "text.txt", "--vocab",
                    "320", "--out", data},
                   folder.root / "tokenize.output");
  ASSERT_EQ(tokenize.wait(), 0) << tokenize.output();
}

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const int length = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (length == 0 || i + static_cast<size_t>(length) > text.size()) return false;
    for (int k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + static_cast<size_t>(k)]) & 0xC0) != 0x80) return false;
    i += static_cast<size_t>(length);
  }
  return true;
}

TEST(GenerateCommand, WritesThePromptAndWholeCharacters_HoweverWildTheTokens) {
  RunFolder folder;
  const std::string data = folder.root / "tokens";
  tokenize_some_text(folder, data);
  const Ended run = folder.train(  // the model's vocabulary is larger than the tokenizer's, as a padded one
      "run", 1, {"data.kind=tokens", "data.path=" + data, "model.vocab=512", "train.steps=1", "train.eval_every=0"});
  ASSERT_EQ(run.status, 0) << run.output;
  const auto generate = [&](const std::string& tokens, const std::string& seed) {
    Command command({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "generate", folder.root / "run", "--prompt",
                     "caf\xC3\xA9 sheep", "--tokens", tokens, "--temperature", "100", "--top-k", "0", "--seed", seed},
                    folder.root / "generate.output");
    return Ended{command.wait(), command.output()};
  };
  EXPECT_EQ(generate("0", "1").output, "caf\xC3\xA9 sheep\n");
  for (const char* seed : {"1", "2", "3"}) {   // a text may end soon
    const Ended wild = generate("600", seed);  // most are bytes, and some of those make characters
    EXPECT_EQ(wild.status, 0);
    EXPECT_TRUE(wild.output.starts_with("caf\xC3\xA9 sheep"));
    EXPECT_LT(wild.output.size(), 6000u);
    EXPECT_TRUE(is_utf8(wild.output));
  }
}

TEST(GenerateCommand, NamesTheBudgetThatItNeeds_AndWritesWithThat) {
  RunFolder folder;
  ASSERT_EQ(folder.train("run", 1, {"train.steps=1", "train.eval_every=0"}).status, 0);
  for (const std::string tokens : {"2", "40"}) {  // in one context, and in more
    const auto generate = [&](std::vector<std::string> more) {
      std::vector<std::string> words = {fs::path(std::getenv("HERD_BINARY_DIR")) / "herd",
                                        "generate",
                                        folder.root / "run",
                                        "--ids",
                                        "1",
                                        "--tokens",
                                        tokens};
      words.insert(words.end(), more.begin(), more.end());
      Command command(words, folder.root / "generate.output");
      return Ended{command.wait(), command.output()};
    };
    const Ended refused = generate({"--budget", "1KiB"});
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.output,
                testing::AllOf(HasSubstr("kOverBudget"), HasSubstr("caches"), HasSubstr("--budget is 1 KiB")));
    const std::string fix = "fix: --budget ";
    const size_t at = refused.output.find(fix);
    ASSERT_NE(at, std::string::npos) << refused.output;
    const std::string enough = refused.output.substr(at + fix.size(), refused.output.find('\n', at) - at - fix.size());
    const Ended written = generate({"--budget", enough});
    EXPECT_EQ(written.status, 0) << enough << "\n" << written.output;
    EXPECT_EQ(written.output, generate({}).output);
  }
}

TEST(TrainCommand, PacksDocumentsIntoSequences_AndResumes) {
  RunFolder folder;
  std::ofstream text(folder.root / "text.jsonl");
  for (int i = 0; i < 300; ++i) text << "{\"text\": \"" << i * 7919 << " sheep" << std::string(i % 9, '.') << "\"}\n";
  text.close();
  const std::string data = folder.root / "tokens";
  Command tokenize({fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", "tokenize", folder.root / "text.jsonl",
                    "--documents", "jsonl", "--vocab", "290", "--out", data},
                   folder.root / "tokenize.output");
  ASSERT_EQ(tokenize.wait(), 0) << tokenize.output();
  EXPECT_THAT(tokenize.output(), HasSubstr("300 documents"));
  const std::vector<std::string> keys = {
      "data.kind=tokens",   "data.path=" + data,    "data.packing=documents",  "model.vocab=290",
      "train.eval_every=2", "train.eval_batches=1", "strategy.recompute=full", "optimizer.schedule=constant"};
  const auto train = [&](const char* name, int ranks, const char* steps) {
    std::vector<std::string> all = keys;
    all.push_back(std::string("train.steps=") + steps);
    return folder.train(name, ranks, all);
  };
  const Ended whole = train("whole", 1, "4"), first = train("parts", 2, "2"), second = train("parts", 2, "4");
  ASSERT_EQ(whole.status, 0) << whole.output;
  ASSERT_EQ(first.status, 0) << first.output;
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(whole.output, HasSubstr("documents packed into"));
  const auto a = read_metrics(folder.root / "whole/metrics.jsonl"),
             b = read_metrics(folder.root / "parts/metrics.jsonl");
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(b.size(), 4u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens);
    EXPECT_LT(a[i].tokens, 6 * 16) << "of padding none counts";
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-5);
  }
  fs::remove(fs::path(data) / "train.documents");
  const Ended refused = train("old", 1, "2");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.output,
              testing::AllOf(HasSubstr("train.documents"), HasSubstr("fix:"), HasSubstr("data.packing")));
}

TEST(TrainCommand, NamesTheRule_ForMissingTruncatedAndTooRichData) {
  RunFolder folder;
  const std::string data = folder.root / "tokens";
  EXPECT_THAT(folder.train("missing", 2, {"data.kind=tokens", "data.path=" + data}).output, HasSubstr(data));
  tokenize_some_text(folder, data);
  const Ended rich = folder.train("rich", 2, {"data.kind=tokens", "data.path=" + data, "model.vocab=300"});
  EXPECT_EQ(rich.status, 2);
  EXPECT_THAT(rich.output, HasSubstr("300"));
  EXPECT_THAT(rich.output, HasSubstr("320"));
  fs::resize_file(fs::path(data) / "train.tokens", fs::file_size(fs::path(data) / "train.tokens") - 10);
  const Ended cut = folder.train("cut", 2, {"data.kind=tokens", "data.path=" + data, "model.vocab=320"});
  EXPECT_NE(cut.status, 0);
  EXPECT_THAT(cut.output, HasSubstr("train.tokens"));
}

}  // namespace
}  // namespace herd::train
