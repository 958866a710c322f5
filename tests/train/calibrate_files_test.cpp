// How a run's files are asked: the fastest of several ways, the same on all ranks, with what the files hold as it was,
// and nothing measured where an earlier start has.
#include "herd/train/calibrate_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "herd/comm/inproc_world.h"
#include "herd/models/decoder.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"
#include "tests/support/temporary_folder.h"

namespace herd::train {
namespace {

TEST(CalibrateFiles, TakesAnotherWayOnlyWhereItIsFaster) {
  const NvmeRequests ways[] = {{16, 1 << 20}, {4, 1 << 20}, {64, 1 << 20}};
  EXPECT_EQ(best_requests(ways, std::vector<double>{100, 90, 104}), ways[0]);
  EXPECT_EQ(best_requests(ways, std::vector<double>{100, 90, 106}), ways[2]);
  EXPECT_EQ(best_requests(ways, std::vector<double>{100, 120, 106}), ways[1]);
  EXPECT_EQ(best_requests(ways, std::vector<double>{100, 0, 0}), ways[0]);
}

// Two ranks with files of pieces and of whole groups, and one stage of a pipeline that has no file at all.
TEST(CalibrateFiles, LeavesWhatFilesHold_AndTellsAllRanksTheSame) {
  for (const bool has_empty_stage : {false, true}) {
    spec::RunFile run = spec::parse_run_text(
        "[model]\nlayers = 2\nwidth = 64\nheads = 2\ncontext = 8\nvocab = 40\ntie_embeddings = false\n[data]\n"
        "kind = \"random\"\n[train]\nbatch = 4\nmicro_batch = 1\n[strategy]\noffload = \"nvme\"\nbucket = 65536\n",
        "test");
    if (has_empty_stage) run.mesh.pp = 2, run.model.frozen = "h.1.* ln_f.* head.weight";
    const spec::Layout layout = strategies::trainable_layout(run, 2);
    const TemporaryFolder folder;
    std::mutex mutex;
    std::vector<FileCalibration> all;
    int without_file = 0;
    run_inproc(2, [&](Communicator& comm) {
      const spec::ModelTable table = spec::model_table(run, layout.micro_batch);
      const models::Model model = models::make_model(run.model, table, models::RankPlace{});
      const program::Program step = strategies::compile_step(run, table, layout, comm.rank());
      runtime::FlatParameters parameters(model.groups, step, comm, {at::kFloat, at::kFloat}, 1,
                                         {.paths = {folder / ("rank" + std::to_string(comm.rank()))}, .run = "one"});
      std::vector<at::Tensor> before;
      const auto each_state = [&](const auto& take) {
        for (int g = 0; g < parameters.num_groups(); ++g) {
          if (!parameters.holds(g) || parameters.group(g).frozen()) continue;
          for (int k = 0; k < 2; ++k) take(parameters.own_state(k, g));
        }
      };
      each_state([&](at::Tensor state) {
        state.normal_();
        before.push_back(state.clone());
      });
      parameters.forget_mapped();
      const FileCalibration found =
          calibrate_files(parameters, {.seconds = 0.05, .min_bytes = has_empty_stage ? 0 : 1}, comm);
      size_t index = 0;
      each_state([&](const at::Tensor& state) { EXPECT_TRUE(state.equal(before.at(index++))); });
      parameters.forget_mapped();
      const NvmeFile* const file = parameters.file();
      if (file != nullptr) {
        EXPECT_GT(file->bytes_read(), 0);
        EXPECT_EQ(file->bytes_read(), file->bytes_written());
        EXPECT_EQ(file->requests(), found.requests);
      }
      const int64_t moved = file == nullptr ? 0 : file->bytes_read();
      const FileCalibration known{.requests = {7, 8192}, .bytes_per_us = 123};
      EXPECT_EQ(calibrate_files(parameters, {.known = known}, comm).bytes_per_us, 123);
      if (file != nullptr) {
        EXPECT_EQ(file->bytes_read(), moved);
        EXPECT_EQ(file->requests(), known.requests);
      }
      const std::lock_guard lock(mutex);
      without_file += file == nullptr ? 1 : 0;
      all.push_back(found);
    });
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(without_file, has_empty_stage ? 1 : 0);
    EXPECT_TRUE(all[0].compared);
    EXPECT_GT(all[0].bytes_per_us, 1);
    EXPECT_EQ(all[0].bytes_per_us, all[1].bytes_per_us);
    EXPECT_EQ(all[0].requests, all[1].requests);
  }
}

TEST(CalibrateFiles, TakesOverWhatTheRunHasMeasuredOnTheSameDrives) {
  const TemporaryFolder folder;
  planner::Cluster cluster = planner::small_server(2);
  const std::string drives = drives_of({.paths = {folder / "drive" / "rank0.nvme"}, .run = "one"});
  EXPECT_EQ(drives, (folder / "drive").string()) << "a folder that is not there yet";
  cluster.files = planner::MeasuredFiles{drives, 64, 256 << 10};
  cluster.device.nvme_bytes_per_us = 2500;
  std::ofstream(folder / "cluster.toml") << planner::to_toml(cluster);
  std::ofstream(folder / "broken.toml") << "herd_cluster = 1\n[files";
  run_inproc(2, [&](Communicator& comm) {
    const auto known = known_files(folder / "cluster.toml", drives, comm);
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(known->requests, (NvmeRequests{64, 256 << 10}));
    EXPECT_EQ(known->bytes_per_us, 2500);
    EXPECT_FALSE(known_files(folder / "cluster.toml", drives + " on device 1:2", comm).has_value());
    EXPECT_FALSE(known_files(folder / "none.toml", drives, comm).has_value());
    EXPECT_FALSE(known_files(folder / "broken.toml", drives, comm).has_value());
  });
  EXPECT_NE(drives_of({.paths = {folder / "rank0.nvme"}, .run = "one"}).find(" on device "), std::string::npos);
}

}  // namespace
}  // namespace herd::train
