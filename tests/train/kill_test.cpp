// A rank is killed before any op of a step, those that read and write files among them, or at any byte of a checkpoint:
// the job resumes at another number of ranks with the losses of a run that nobody disturbed, in any precision; at the
// same layout with the same bits. A sample; all of it with HERD_FULL_TESTS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "herd/storage/checkpoint_folder.h"
#include "killed_job.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

constexpr int64_t kSteps = 4, kDeadlyStep = 2;

bool full() { return std::getenv("HERD_FULL_TESTS") != nullptr; }

// Of weights, gradients and momentum.
struct Precision {
  std::string name = "fp32", momentum = "fp32";
  double on_other_ranks = 1e-6;  // relative difference of losses; on as many and at the same stage there is none
};

spec::RunFile small_run(const Precision& precision, double clip) {
  spec::RunFile run = spec::parse_run_text(
      "[model]\nlayers = 2\nwidth = 40\nheads = 2\ncontext = 8\nvocab = 40\ndropout = 0.1\n[data]\nkind = \"random\"\n"
      "[train]\nsteps = " +
          std::to_string(kSteps) + "\nbatch = 12\nmicro_batch = 2\n[optimizer]\nlr = 1e-2\n",
      "test");
  run.optimizer.clip = clip;
  run.strategy.precision = precision.name;
  run.optimizer.momentum_precision = precision.momentum;
  return run;
}

struct Move {
  JobLayout from, to;
  Precision precision = {};
  double clip = 1;  // no rank clips what it pushes to servers
};

const std::map<int64_t, double>& undisturbed(const JobLayout& layout, const Precision& precision, double clip) {
  static std::map<std::tuple<JobLayout, std::string, double>, std::map<int64_t, double>> all;
  auto& losses = all[{layout, precision.name, clip}];
  if (losses.empty()) {
    TemporaryFolder folder;
    losses = run_job(folder.path(), small_run(precision, clip), layout).losses;
  }
  return losses;
}

void expect_undisturbed(const JobEnd& end, const Move& move) {
  const bool same = move.from == move.to;
  const auto& expected = undisturbed(same ? move.from : JobLayout{1, 0}, move.precision, move.clip);
  const double tolerance = same ? 0 : move.precision.on_other_ranks;
  for (const auto& [step, loss] : end.losses)
    EXPECT_NEAR(loss, expected.at(step), tolerance * expected.at(step)) << "step " << step;
}

class KilledJob : public testing::TestWithParam<Move> {
 protected:
  // The step that the job went on from after the death.
  static int64_t resume_after(const Death& death) {
    const auto& [from, to, precision, clip] = GetParam();
    TemporaryFolder folder;
    const JobEnd killed = run_job(folder.path(), small_run(precision, clip), from, death);
    for (Rank rank = 0; rank < from.ranks; ++rank) {
      EXPECT_EQ(killed.killed(rank), rank == death.rank) << "rank " << rank;
      const std::string& error = killed.ranks[static_cast<size_t>(rank)].error;
      if (rank == death.rank) {
        EXPECT_EQ(error, "");
      } else {
        EXPECT_THAT(error, HasSubstr("rank " + std::to_string(death.rank) + " is lost"));
      }
    }
    expect_undisturbed(killed, GetParam());
    const JobEnd resumed = run_job(folder.path(), small_run(precision, clip), to);
    for (const RankEnd& rank : resumed.ranks) EXPECT_EQ(rank.status, 0) << rank.error;
    EXPECT_EQ(static_cast<int64_t>(resumed.losses.size()), kSteps - resumed.resumed_from);
    expect_undisturbed(resumed, GetParam());
    if (resumed.resumed_from < kSteps) expect_two_whole_checkpoints(folder / "checkpoints");  // it has saved
    return resumed.resumed_from;
  }

 private:
  // Whole, and nothing beside them of what the death left.
  static void expect_two_whole_checkpoints(const std::filesystem::path& root) {
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), std::filesystem::directory_iterator()), 2);
    for (const FoundCheckpoint& one : list_checkpoints(root)) {
      CheckpointReader reader(one.folder);
      reader.verify();
      const auto files = std::distance(std::filesystem::directory_iterator(one.folder), {});
      EXPECT_EQ(static_cast<size_t>(files), reader.manifest().files.size() + 1) << one.folder;
    }
  }
};

TEST_P(KilledJob, ResumesOnOtherRanks_WhereverInAStepARankDies) {
  const JobLayout from = GetParam().from;
  TemporaryFolder folder;
  const int ops = run_job(folder.path(), small_run(GetParam().precision, GetParam().clip), from).ops;
  ASSERT_GT(ops, 10);
  const int all = ops * from.ranks, stride = full() ? 1 : all / 4 + 1;
  for (int which = stride / 2; which < all; which += stride) {
    const Death death{.rank = which % from.ranks, .step = kDeadlyStep, .op = which / from.ranks};
    SCOPED_TRACE("rank " + std::to_string(death.rank) + " dies before op " + std::to_string(death.op));
    const int64_t from_step = resume_after(death);
    EXPECT_TRUE(from_step == kDeadlyStep || from_step == kDeadlyStep - 1) << from_step;
  }
}

TEST_P(KilledJob, ResumesOnOtherRanks_AtWhateverByteOfACheckpointARankDies) {
  const JobLayout from = GetParam().from;
  TemporaryFolder folder;
  const JobEnd whole = run_job(folder.path(), small_run(GetParam().precision, GetParam().clip), from);
  expect_undisturbed(whole, GetParam());
  std::mt19937 random(11);
  for (const auto& [rank, calls] : whole.calls) {
    ASSERT_GT(calls.size(), 2u) << "every rank writes";
    std::vector<int64_t> positions(calls.begin(), calls.end() - 1);
    const int64_t end = calls.back();
    std::shuffle(positions.begin(), positions.end(), random);
    if (!full()) positions.resize(1);
    for (int i = 0; i < (full() ? 100 : 1); ++i)
      positions.push_back(std::uniform_int_distribution<int64_t>(0, end - 1)(random));
    for (const int64_t position : positions) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " dies at byte " + std::to_string(position) + " of " +
                   std::to_string(end));
      const int64_t from_step = resume_after({.rank = rank, .position = position});
      EXPECT_TRUE(from_step >= 1 || position <= end / 2) << "half of four saves were done";
    }
  }
}

std::string name_of(const testing::TestParamInfo<Move>& move) {
  const auto name = [](const JobLayout& job) {
    return std::to_string(job.ranks) + "Ranks" +
           (job.servers > 0 ? "Servers" + std::to_string(job.servers) : "Zero" + std::to_string(job.zero)) +
           (job.offload == "nvme"             ? "InFiles"
            : job.offload == "nvme_gradients" ? "GradientsInFiles"
            : job.offload == "nvme_all"       ? "AllInFiles"
                                              : "");
  };
  return name(move.param.from) + "To" + name(move.param.to) + "In" + move.param.precision.name;
}

INSTANTIATE_TEST_SUITE_P(Moves, KilledJob,
                         testing::Values(Move{{3, 3}, {2, 1}}, Move{{2, 2}, {3, 3}}, Move{{2, 0}, {1, 0}},
                                         Move{{2, 1}, {4, 2}}, Move{{2, 3}, {2, 3}, {"bf16", "bf16"}},
                                         Move{{3, 1}, {2, 2}, {"bf16", "fp32", 4 * 0x1p-8}},
                                         Move{{2, 1}, {2, 1}, {"fp16", "fp32"}}, Move{{3, 0, 2}, {2, 1}, {}, 0},
                                         Move{{2, 0}, {3, 3}, {"fp16", "fp32", 4 * 0x1p-11}},
                                         Move{{2, 3, 0, "nvme"}, {2, 3, 0, "nvme"}}, Move{{2, 1, 0, "nvme"}, {3, 2}},
                                         Move{{2, 2, 0, "nvme_gradients"}, {2, 2, 0, "nvme_gradients"}},
                                         Move{{2, 3, 0, "nvme_gradients"}, {1, 0, 0, "nvme_all"}},
                                         Move{{2, 3, 0, "nvme_all"}, {2, 3, 0, "nvme_all"}}),
                         name_of);

}  // namespace
}  // namespace herd::train
