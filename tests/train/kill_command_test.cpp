// herd train, killed at random moments and on a disk that fills up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "herd/storage/run_folder.h"

namespace herd::train {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// A process of the run, the launcher among them; -1 if there is none.
pid_t random_process(const RunFolder& folder, std::mt19937& random) {
  const auto found = Command::processes_with(folder.root.string());
  return found.empty() ? -1 : found[random() % found.size()];
}

TEST(KillCommand, ResumesOnOtherRanks_WhereverARunIsKilled) {
  RunFolder folder;
  const auto overrides_of = [](bool clips) {
    return std::vector<std::string>{"train.steps=60", "checkpoint.every=1", "train.eval_every=0",
                                    clips ? "optimizer.clip=1" : "optimizer.clip=0"};
  };
  std::map<bool, std::vector<StepMetrics>> undisturbed;  // by whether it clips
  for (const bool clips : {false, true}) {
    const std::string name = clips ? "clipped" : "unclipped";
    ASSERT_EQ(folder.train(name, 1, overrides_of(clips)).status, 0);
    undisturbed[clips] = read_metrics(folder.root / name / "metrics.jsonl");
  }
  std::mt19937 random(std::random_device{}());
  const int rounds = std::getenv("HERD_FULL_TESTS") ? 50 : 3;
  for (int round = 0; round < rounds; ++round) {
    const std::string name = "run" + std::to_string(round);
    const bool serves = random() % 3 == 0;
    const bool is_dedicated = random() % 2 == 0;
    const std::vector<std::string> overrides = overrides_of(!serves);  // no rank clips what it pushes to servers
    const std::vector<StepMetrics>& expected = undisturbed.at(!serves);
    SCOPED_TRACE(!serves ? "ZeRO" : is_dedicated ? "dedicated servers" : "servers");
    const auto with_servers = [&] {
      auto all = overrides;
      all.insert(all.end(),
                 {"strategy.sync=server", is_dedicated ? "strategy.dedicated_servers=1" : "strategy.servers=1"});
      return all;
    };
    const auto with_zero = [&](int stage) {
      auto all = overrides;
      all.push_back("strategy.zero=" + std::to_string(stage));
      if (round % 3 > 0) all.push_back("strategy.offload=nvme");
      if (round % 3 == 1)
        all.push_back("memory.nvme_path=" + (folder.root / name / "drive1").string() + ":" +
                      (folder.root / name / "drive2").string());
      if (round % 3 == 2) all.insert(all.end(), {"strategy.recompute=full", "strategy.offload_activations=nvme"});
      return all;
    };
    Command run = folder.start(name, 3, serves ? with_servers() : with_zero(3));
    ASSERT_TRUE(run.wait_for("step 3/")) << run.output();  // the save after step 1 is whole by then
    usleep(static_cast<useconds_t>(random() % 500'000));
    const pid_t victim = random_process(folder, random);
    if (victim > 0) kill(victim, SIGKILL);
    run.wait();
    for (int i = 0; i < 3000 && !Command::processes_with(folder.root.string()).empty(); ++i) usleep(20'000);
    ASSERT_TRUE(Command::processes_with(folder.root.string()).empty()) << "a process outlived the run";
    if (read_run_record(folder.root / name).ended_at == 60) continue;  // it was finished before
    const bool serves_again = serves && random() % 2 == 0;
    const Ended resumed = folder.train(name, 2, serves_again ? with_servers() : with_zero(round % 3));
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
    const auto steps = read_metrics(folder.root / name / "metrics.jsonl");
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-6 * expected[i].loss) << "step " << i + 1;
  }
}

// Runs a script of sh, which finds herd as $HERD and an empty disk of 700 KiB as $DISK, in a mount namespace of its
// own. One checkpoint of 420 KiB fits that disk, a second does not.
std::string on_a_small_disk(const RunFolder& folder, const std::string& script) {
  fs::create_directory(folder.root / "disk");
  const std::string herd = fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", disk = folder.root / "disk";
  Command command(
      {"/usr/bin/env", "unshare", "-rm", "env", "HERD=" + herd, "DISK=" + disk,
       "RUN=" + (folder.root / "run.toml").string(), "sh", "-c", "mount -t tmpfs -o size=700k tmpfs $DISK; " + script},
      folder.root / "output");
  command.wait();
  return command.output();
}

bool may_mount() { return std::system("unshare -rm true 2>/dev/null") == 0; }

// The first checkpoint is moved away, and so is what fills the disk, while training goes on.
TEST(KillCommand, TrainsOnWhileTheDiskIsFull_AndSavesAgainOnceItHasRoom) {
  if (!may_mount()) GTEST_SKIP() << "no right to mount in a namespace (unshare -rm)";
  RunFolder folder;
  const std::string output = on_a_small_disk(
      folder,
      R"($HERD train $RUN --ranks 2 log.dir=$DISK train.steps=400 checkpoint.every=20 train.eval_every=0 log.every=1 &
for i in $(seq 600); do [ -e $DISK/run/checkpoints/step-00000020/manifest.json ] && break; sleep 0.05; done
head -c 700k /dev/zero > $DISK/fills 2>/dev/null
for i in $(seq 600); do grep -q 'step 100/' $DISK/../output && break; sleep 0.05; done
rm $DISK/fills; mount -o remount,size=8m $DISK
wait $!; echo status $?
$HERD checkpoint inspect --verify $DISK/run; wc -l < $DISK/run/metrics.jsonl)");
  EXPECT_THAT(output, AllOf(HasSubstr("is not saved: "), HasSubstr("the file needs"), HasSubstr("are free"),
                            HasSubstr("training goes on with an older checkpoint"), HasSubstr("saved again"),
                            HasSubstr("can't be written to"), HasSubstr("are written again")));
  EXPECT_THAT(output, AllOf(HasSubstr("status 0"), HasSubstr("step 400, 2400 samples"),
                            HasSubstr("every checksum holds"), HasSubstr("\n401\n")));
}

// By servers, too, whose shards hold the states of the optimizer.
class LastSave : public testing::TestWithParam<const char*> {};

TEST_P(LastSave, ThatFailsIsAnError_AndTheOlderCheckpointIsWhole) {
  if (!may_mount()) GTEST_SKIP() << "no right to mount in a namespace (unshare -rm)";
  RunFolder folder;
  const std::string output = on_a_small_disk(
      folder, std::string("KEYS='") + GetParam() + "'\n" +
                  R"($HERD train $RUN --ranks 2 log.dir=$DISK train.steps=50 checkpoint.every=20 train.eval_every=0 \
  log.every=1 $KEYS
echo status $?; $HERD checkpoint inspect --verify $DISK/run; ls $DISK/run/checkpoints/*)");
  EXPECT_THAT(output, AllOf(HasSubstr("kStorage"), ContainsRegex("shard-0000[01].safetensors"),
                            HasSubstr("the file needs"), HasSubstr("are free"), HasSubstr("fix: free space there"),
                            HasSubstr("status 1"), HasSubstr("step 50/")));
  EXPECT_THAT(output,
              AllOf(HasSubstr("step 20, 120 samples"), HasSubstr("every checksum holds"), Not(HasSubstr(".tmp."))));
}

INSTANTIATE_TEST_SUITE_P(Syncs, LastSave,
                         testing::Values("", "strategy.sync=server strategy.servers=2 optimizer.clip=0",
                                         "strategy.sync=server strategy.dedicated_servers=1 optimizer.clip=0"));

TEST(KillCommand, EndsWhereTheDiskIsFullBeforeTheFirstSave) {
  if (!may_mount()) GTEST_SKIP() << "no right to mount in a namespace (unshare -rm)";
  RunFolder folder;
  const std::string output = on_a_small_disk(folder, R"(head -c 400k /dev/zero > $DISK/fills
$HERD train $RUN --ranks 2 log.dir=$DISK train.steps=100000 checkpoint.every=20 train.eval_every=0 log.every=1000
echo status $?)");
  EXPECT_THAT(output, AllOf(HasSubstr("kStorage"), HasSubstr("the file needs"), HasSubstr("fix: free space there"),
                            HasSubstr("status 1"), Not(HasSubstr("training goes on"))));
}

TEST(KillCommand, ATokenFileThatIsCutEndsTheRun_NamingFileAndFix) {
  RunFolder folder;
  std::ofstream text(folder.root / "text");
  for (int line = 0; line < 3000; ++line) text << "line " << line << " of a text about " << line * line << "\n";
  text.close();
  const std::string tokens = folder.root / "tokens", herd = fs::path(std::getenv("HERD_BINARY_DIR")) / "herd";
  Command tokenize({herd, "tokenize", folder.root / "text", "--out", tokens, "--vocab", "300"},
                   folder.root / "tokenized");
  ASSERT_EQ(tokenize.wait(), 0) << tokenize.output();
  Command run = folder.start("run", 2,
                             {"data.kind=tokens", "data.path=" + tokens, "train.steps=100000", "train.eval_every=0",
                              "checkpoint.every=0", "log.every=100"});
  ASSERT_TRUE(run.wait_for("step 1/")) << run.output();
  fs::resize_file(tokens + "/train.tokens", 64);
  EXPECT_EQ(run.wait(), 1);
  EXPECT_THAT(run.output(), AllOf(HasSubstr("kCorruptFile: " + tokens + "/train.tokens at byte "),
                                  HasSubstr("it was cut while it was read"), HasSubstr("fix: write it again"),
                                  Not(HasSubstr("SIGBUS"))));
}

}  // namespace
}  // namespace herd::train
