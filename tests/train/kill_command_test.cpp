// herd train, killed at random moments and on a disk that fills up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"

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
  const std::vector<std::string> overrides = {"train.steps=60", "checkpoint.every=1", "train.eval_every=0"};
  ASSERT_EQ(folder.train("whole", 1, overrides).status, 0);
  const auto expected = read_metrics(folder.root / "whole/metrics.jsonl");
  std::mt19937 random(std::random_device{}());
  const int rounds = std::getenv("HERD_FULL_TESTS") ? 20 : 3;
  for (int round = 0; round < rounds; ++round) {
    const std::string name = "run" + std::to_string(round);
    const auto with_zero = [&](int stage) {
      auto all = overrides;
      all.push_back("strategy.zero=" + std::to_string(stage));
      return all;
    };
    Command run = folder.start(name, 3, with_zero(3));
    ASSERT_TRUE(run.wait_for("step 2/")) << run.output();
    usleep(static_cast<useconds_t>(random() % 500'000));
    const pid_t victim = random_process(folder, random);
    if (victim > 0) kill(victim, SIGKILL);
    run.wait();
    for (int i = 0; i < 500 && !Command::processes_with(folder.root.string()).empty(); ++i) usleep(20'000);
    ASSERT_TRUE(Command::processes_with(folder.root.string()).empty()) << "a process outlived the run";
    const Ended resumed = folder.train(name, 2, with_zero(round % 3));
    ASSERT_EQ(resumed.status, 0) << resumed.output;
    EXPECT_THAT(resumed.output, HasSubstr("resumed from"));
    const auto steps = read_metrics(folder.root / name / "metrics.jsonl");
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); ++i)
      EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-6 * expected[i].loss) << "step " << i + 1;
  }
}

// A disk of 700 KiB, which one checkpoint of 420 KiB fits and a second does not, in a mount namespace of its own.
TEST(KillCommand, EndsAtTheNextStep_WhenTheDiskIsFull_AndTheOlderCheckpointIsWhole) {
  if (std::system("unshare -rm true 2>/dev/null") != 0)
    GTEST_SKIP() << "no right to mount in a namespace (unshare -rm)";
  RunFolder folder;
  fs::create_directory(folder.root / "disk");
  const std::string herd = fs::path(std::getenv("HERD_BINARY_DIR")) / "herd", disk = folder.root / "disk";
  const std::string script =
      "mount -t tmpfs -o size=700k tmpfs " + disk + " && " + herd + " train " + (folder.root / "run.toml").string() +
      " --ranks 2 log.dir=" + disk +
      " train.steps=100000 checkpoint.every=20 train.eval_every=0 log.every=1; echo status $?; " + herd +
      " checkpoint inspect --verify " + disk + "/run; ls " + disk + "/run/checkpoints/*";
  Command command({"/usr/bin/env", "unshare", "-rm", "sh", "-c", script}, folder.root / "output");
  ASSERT_EQ(command.wait(), 0) << command.output();
  EXPECT_THAT(command.output(),
              AllOf(HasSubstr("kStorage"), ContainsRegex("shard-0000[01].safetensors"), HasSubstr("the file needs"),
                    HasSubstr("are free"), HasSubstr("fix: free space there"), HasSubstr("status 1")));
  EXPECT_THAT(command.output(), AllOf(HasSubstr("step 40/"), Not(HasSubstr("step 60/")))) << "not at the next save";
  EXPECT_THAT(command.output(),
              AllOf(HasSubstr("step 20, 120 samples"), HasSubstr("every checksum holds"), Not(HasSubstr(".tmp."))));
}

}  // namespace
}  // namespace herd::train
