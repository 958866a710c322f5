// A job whose states and activations lie in files, and whose drive fails one request: every rank ends with an error
// that names the file, the place, the bytes and the fix; what a drive moves by halves changes nothing; a checkpoint
// that is refused is written again. The job then goes on from its last checkpoint to the losses of one that nobody
// disturbed. A sample; all of it with HERD_FULL_TESTS=1. The program is linked with tests/support/faulty_files.cpp,
// which is preloaded into herd train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "command.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "killed_job.h"
#include "tests/support/sample.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

using std::chrono::steady_clock;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSteps = 4, kFaultyStep = 2;
constexpr Rank kVictim = 1;
constexpr JobLayout kJob = {.ranks = 2, .zero = 1, .offload = "nvme"};
constexpr auto kPatience = std::chrono::seconds(20);  // in which the ranks end, on a busy machine too

spec::RunFile faulty_job() {
  return spec::parse_run_text(
      "[model]\nlayers = 2\nwidth = 16\nheads = 2\ncontext = 8\nvocab = 40\ndropout = 0.1\n[data]\nkind = \"random\"\n"
      "[train]\nsteps = " +
          std::to_string(kSteps) + "\nbatch = 12\nmicro_batch = 2\n[optimizer]\nlr = 1e-2\n",
      "test");
}

const std::map<int64_t, double>& losses_of_whole_job() {
  static const std::map<int64_t, double> losses = [] {
    const TemporaryFolder folder;
    return run_job(folder.path(), faulty_job(), kJob).losses;
  }();
  return losses;
}

void expect_losses_of_whole_job(const JobEnd& end) {
  EXPECT_FALSE(end.losses.empty());
  for (const auto& [step, loss] : end.losses) EXPECT_EQ(loss, losses_of_whole_job().at(step)) << "step " << step;
}

// Counts the requests of a step of the victim to its file: one for each value, all shorter than a request may be.
int64_t requests_of_a_step(program::OpKind kind) {
  spec::RunFile run = faulty_job();
  killed_job::set_layout(run, kJob);
  const spec::Layout layout = strategies::trainable_layout(run, kJob.ranks);
  const program::Program step =
      strategies::compile_step(run, spec::model_table(run, layout.micro_batch), layout, kVictim);
  int64_t requests = 0;
  for (const program::Op& op : step.ops)
    requests += op.kind == kind && op.lane == program::Lane::kIo ? static_cast<int64_t>(op.writes.size()) : 0;
  return requests;
}

class FaultyDrive : public testing::Test {
 protected:
  ~FaultyDrive() override { unsetenv("HERD_FAULTY_FILES"); }

  JobEnd run_with(const std::string& faults) {
    setenv("HERD_FAULTY_FILES", faults.c_str(), 1);
    const JobEnd end = run_job(folder_.path(), faulty_job(), kJob);
    unsetenv("HERD_FAULTY_FILES");
    return end;
  }
  std::filesystem::path file() const { return folder_ / killed_job::file_of("nvme", kVictim); }

  void expect_whole_checkpoints() const {
    for (const FoundCheckpoint& one : list_checkpoints(folder_ / "checkpoints"))
      EXPECT_NO_THROW(CheckpointReader(one.folder).verify());
  }

  void expect_it_goes_on() {
    expect_whole_checkpoints();
    const JobEnd resumed = run_with("");
    for (const RankEnd& rank : resumed.ranks) EXPECT_EQ(rank.status, 0) << rank.error;
    EXPECT_GE(resumed.resumed_from, kFaultyStep - 1);
    EXPECT_EQ(static_cast<int64_t>(resumed.losses.size()), kSteps - resumed.resumed_from);
    expect_losses_of_whole_job(resumed);
  }

  const TemporaryFolder folder_;
};

TEST_F(FaultyDrive, IsNamedByAllRanks_WhicheverRequestOfAStepItFails) {
  int index = 0;
  for (const auto& [request, kind] : {std::pair("read", program::OpKind::kFetch), {"write", program::OpKind::kEvict}}) {
    const int64_t of_a_step = requests_of_a_step(kind), before = kind == program::OpKind::kEvict ? 1 : 0;  // the header
    ASSERT_GT(of_a_step, 10);
    for (int64_t number = 1; number <= of_a_step; ++number) {
      for (const std::string error : {"EIO", "ENOSPC"}) {
        for (const std::string ring : {"", ";ring 1 ENOSYS /"}) {
          if ((error == "ENOSPC" && kind == program::OpKind::kFetch) || ++index % one_in(37, 67) != 0) continue;
          const std::string fault = request + (" " + std::to_string(before + kFaultyStep * of_a_step + number)) + " " +
                                    error + " " + file().string() + ring;
          SCOPED_TRACE(fault);
          std::filesystem::remove_all(folder_.path() / "checkpoints");
          const auto begin = steady_clock::now();
          const JobEnd end = run_with(fault);
          EXPECT_LT(steady_clock::now() - begin, kPatience);
          for (Rank rank = 0; rank < kJob.ranks; ++rank) {
            EXPECT_THAT(
                end.ranks[static_cast<size_t>(rank)].error,
                AllOf(HasSubstr(rank == kVictim ? "kStorage" : "kAborted"),
                      HasSubstr("can't " + std::string(request) + " "), HasSubstr(" KiB at byte "),
                      HasSubstr(file().string()),
                      HasSubstr(error == "EIO" ? "Input/output error" : "No space left on device"), HasSubstr("fix: ")))
                << "rank " << rank;
          }
          expect_losses_of_whole_job(end);
          expect_it_goes_on();
        }
      }
    }
  }
  EXPECT_GT(index, 60);
}

TEST_F(FaultyDrive, ChangesNothingWhereItMovesHalves_AndWhereItRefusesWhatIsFaster) {
  std::string halves;
  for (int number = 2; number < 90; number += 3)
    halves += "read " + std::to_string(number) + " short nvme;write " + std::to_string(number) + " short nvme;";
  for (const std::string& faults : {halves, halves + "ring 1 ENOSYS /", std::string("open 1 EINVAL nvme")}) {
    std::filesystem::remove_all(folder_.path() / "checkpoints");
    const JobEnd end = run_with(faults);
    for (const RankEnd& rank : end.ranks) EXPECT_EQ(rank.status, 0) << rank.error;
    EXPECT_EQ(end.losses, losses_of_whole_job()) << faults;
  }
}

// A checkpoint that is refused is written again, and the job goes on.
TEST_F(FaultyDrive, CostsNoCheckpoint_WhereItRefusesToWriteOne) {
  for (const std::string fault : {"write 8 EIO", "write 40 EIO", "write 40 ENOSPC", "write 30 short"}) {
    SCOPED_TRACE(fault);
    std::filesystem::remove_all(folder_.path() / "checkpoints");
    const JobEnd end = run_with(fault + " " + (folder_ / "checkpoints").string());
    for (const RankEnd& rank : end.ranks) EXPECT_EQ(rank.status, 0) << rank.error;
    EXPECT_EQ(end.losses, losses_of_whole_job());
    ASSERT_FALSE(list_checkpoints(folder_ / "checkpoints").empty());
    EXPECT_EQ(list_checkpoints(folder_ / "checkpoints").front().step, kSteps);
    expect_whole_checkpoints();
  }
}

// What a user sees.
TEST(FaultyDriveOfACommand, EndsTheRun_AndItGoesOnFromItsLastCheckpoint) {
  RunFolder folder;
  const std::vector<std::string> run = {"strategy.offload=nvme", "memory.nvme_bandwidth=1GB/s", "checkpoint.every=2",
                                        "train.steps=12",        "train.eval_every=0",          "strategy.zero=1"};
  ASSERT_EQ(folder.train("whole", 2, run).status, 0);
  const auto expected = read_metrics(folder.root / "whole/metrics.jsonl");
  const fs::path drive = folder.root / "drive";
  auto words = folder.command("run", 2, run);
  words.insert(words.begin(),
               {"/usr/bin/env",
                "LD_PRELOAD=" + (fs::path(std::getenv("HERD_BINARY_DIR")) / "lib/libherd_faulty_files.so").string(),
                "HERD_FAULTY_FILES=read 40 EIO drive/rank1.nvme;open 1 EINVAL drive/rank0.nvme"});
  words.push_back("memory.nvme_path=" + drive.string());
  const auto begin = steady_clock::now();
  Command job(words, folder.root / "output");
  EXPECT_EQ(job.wait(), 1);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_THAT(job.output(),
              AllOf(HasSubstr("no O_DIRECT in " + drive.string()), HasSubstr("kStorage: "), HasSubstr("can't read "),
                    HasSubstr(" at byte "), HasSubstr("drive/rank1.nvme"), HasSubstr("Input/output error"),
                    HasSubstr("fix: check that drive"), Not(HasSubstr("kBug"))));
  EXPECT_FALSE(list_checkpoints(folder.root / "run/checkpoints").empty());
  const Ended again = folder.train("run", 2, run);
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("resumed from"));
  const auto steps = read_metrics(folder.root / "run/metrics.jsonl");
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].loss, expected[i].loss) << "step " << i + 1;
}

}  // namespace
}  // namespace herd::train
