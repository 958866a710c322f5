// Runs of herd train whose optimizer states lie on the host: they train as others do, save for them and start from
// them, and leave the device the memory that is predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "layout_moves.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

const std::vector<std::string> kRun = run_to_move({"optimizer.lr=3e-4"});
const std::string kOffload = "strategy.offload=states", kFiles = "strategy.offload=nvme",
                  kWindow = "strategy.offload=window",
                  kPieces = "strategy.bucket=4096";  // layers are updated in pieces

// By default each move in one of both precisions.
TEST(OffloadCommand, TrainsAsOthersDo_AndCheckpointsMoveBothWays) {
  RunFolder folder;
  int drawn = 0;
  for (const std::string precision : {"fp32", "bf16"}) {
    const auto overrides = with(kRun, {"strategy.precision=" + precision});
    ASSERT_EQ(folder.train("plain" + precision, 1, overrides).status, 0);
    const auto expected = metrics_of(folder.root / ("plain" + precision));
    // 16-bit sums in another order differ by half their last bit (random_parity_test.cpp).
    const Tolerance within = precision == "fp32" ? Tolerance{} : Tolerance{0x1p-8, 0x1p-6};
    const std::pair<Layout, Layout> moves[] = {{{2, {kOffload}}, {2}},
                                               {{2, {"strategy.zero=3"}}, {2, {kOffload, "strategy.zero=2"}}},
                                               {{2, {kOffload, "mesh.pp=2"}}, {2, {kOffload, "mesh.tp=2"}}},
                                               {{2, {kFiles, "strategy.zero=1", kPieces}}, {1, {kFiles}}},
                                               {{2, {kOffload}}, {2, {kFiles, "mesh.pp=2", kPieces}}},
                                               {{2, {kWindow, "strategy.zero=3"}}, {2, {kWindow, "strategy.zero=1"}}},
                                               {{2, {kWindow, "strategy.zero=2"}}, {2, {kWindow, "mesh.fsdp=2"}}}};
    for (int index = 0; const auto& move : moves) {
      if (++drawn % one_in(2, 2) != 0) continue;
      expect_moves(folder, "move" + std::to_string(index++) + precision, overrides, expected, move, within);
    }
  }
}

// Against a run that keeps all on the device: the same bits with one rank in fp32, and less device memory by the
// states.
TEST(OffloadCommand, LeavesTheDeviceWhatIsPredicted_WithTheSameBits) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  RunFolder folder;
  const std::vector<std::string> model = {"model.width=256",   "model.context=128", "model.layers=4",
                                          "model.vocab=2048",  "train.batch=2",     "train.steps=2",
                                          "train.eval_every=0"};
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    const auto run = with(model, {"strategy.precision=" + precision});
    ASSERT_EQ(folder.train("on" + precision, 1, run).status, 0);
    for (const std::string& offload : {kOffload, kFiles}) {
      const std::string name = (offload == kFiles ? "files" : "off") + precision;
      const Ended ended = folder.train(name, 1, with(run, {offload}));
      ASSERT_EQ(ended.status, 0) << ended.output;
      const auto on = metrics_of(folder.root / ("on" + precision)), off = metrics_of(folder.root / name);
      ASSERT_EQ(on.size(), off.size());
      for (size_t i = 0; i < on.size(); ++i) EXPECT_EQ(on[i].loss, off[i].loss) << name << " step " << i;
      const double predicted = static_cast<double>(off.back().predicted_device_bytes_peak);
      EXPECT_NEAR(static_cast<double>(off.back().device_bytes_peak), predicted, 0.03 * predicted) << name;
      EXPECT_LT(off.back().device_bytes_peak, on.back().device_bytes_peak * 7 / 10) << name;
    }
  }
}

// With as little else on the device as may be, what 8 layers keep shows.
TEST(OffloadCommand, MovesActivations_WithTheSameBits_AndLeavesTheDeviceWhatIsPredicted) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  RunFolder folder;
  const std::vector<std::string> run = {"model.width=64",          "model.context=256",  "model.layers=8",
                                        "model.vocab=64",          "train.batch=16",     "train.micro_batch=8",
                                        "train.steps=3",           "train.eval_every=0", "log.trace_steps=1",
                                        "strategy.recompute=full", "checkpoint.every=-1"};
  ASSERT_EQ(folder.train("kept", 1, run).status, 0);
  const auto kept = metrics_of(folder.root / "kept");
  for (const std::string where : {"host", "nvme"}) {
    const Ended ended = folder.train(where, 1, with(run, {"strategy.offload_activations=" + where}));
    ASSERT_EQ(ended.status, 0) << ended.output;
    const auto moved = metrics_of(folder.root / where);
    ASSERT_EQ(moved.size(), kept.size());
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(moved[i].loss, kept[i].loss) << where << " step " << i;
    const double predicted = static_cast<double>(moved.back().predicted_device_bytes_peak);
    EXPECT_NEAR(static_cast<double>(moved.back().device_bytes_peak), predicted, 0.03 * predicted) << where;
    constexpr int64_t kInput = 8 * 256 * 64 * 4;
    EXPECT_LE(moved.back().device_bytes_peak, kept.back().device_bytes_peak - 3 * kInput) << where;
  }
}

// The gradient that waits for its update is part of a checkpoint, which any layout goes on from.
TEST(OffloadCommand, DelaysUpdatesInTheSameWayInAnyLayout_AndAcrossCheckpoints) {
  RunFolder folder;
  const auto fast = with(kRun, {"optimizer.lr=3e-3", "optimizer.warmup_steps=0"});
  const auto delayed = with(fast, {"strategy.delayed_update=true"});
  ASSERT_EQ(folder.train("plain", 1, fast).status, 0);
  ASSERT_EQ(folder.train("delayed", 1, with(delayed, {kOffload})).status, 0);
  const auto plain = metrics_of(folder.root / "plain"), expected = metrics_of(folder.root / "delayed");
  EXPECT_NEAR(expected[0].loss, plain[0].loss, 1e-6 * plain[0].loss);
  EXPECT_GT(std::abs(expected.back().loss - plain.back().loss), 1e-4 * plain.back().loss);
  const std::pair<Layout, Layout> moves[] = {{{2, {kOffload}}, {1, {kFiles}}},
                                             {{2, {kFiles, "strategy.zero=3"}}, {2, {kOffload, "mesh.pp=2"}}}};
  for (int index = 0; const auto& move : moves)
    expect_moves(folder, "move" + std::to_string(index++), delayed, expected, move);
  const Ended ended = folder.train("delayed", 1, with(fast, {kOffload, "train.steps=12"}));
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, testing::HasSubstr("the gradient that waits for its update is left out"));
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

// The files of a run are scratch space: gone when it ends, its own when it was killed, and nobody else's.
TEST(OffloadCommand, KeepsFilesWhereTheRunSays_AndRefusesThoseOfAnotherRun) {
  RunFolder folder;
  const auto run = with(kRun, {kFiles, "train.steps=4", "checkpoint.every=2"});
  ASSERT_EQ(folder.train("own", 2, run).status, 0);
  EXPECT_TRUE(!fs::exists(folder.root / "own" / "nvme") || files_below(folder.root / "own" / "nvme").empty());

  const fs::path drive = folder.root / "drive";
  fs::create_directories(drive);
  const std::string other = "herd nvme 1\n0123456789abcdef\nw0.nvme 4096\n";
  std::ofstream(drive / "rank1.nvme") << other;
  const Ended refused = folder.train("there", 2, with(run, {"memory.nvme_path=" + drive.string()}));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.output, testing::HasSubstr("rank1.nvme belongs to run 0123456789abcdef, this is run "));
  EXPECT_THAT(refused.output, testing::HasSubstr("fix: memory.nvme_path = another folder"));
  std::ifstream left(drive / "rank1.nvme");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(left), {}), other);
  fs::remove(drive / "rank1.nvme");
  // Two folders share the values, and losses are the same.
  const std::string both = "memory.nvme_path=" + drive.string() + ":" + (folder.root / "drive2").string();
  const Ended ended = folder.train("there", 2, with(run, {both}));
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(files_below(drive).empty());
  EXPECT_TRUE(fs::exists(folder.root / "drive2") && files_below(folder.root / "drive2").empty());
  const auto own = metrics_of(folder.root / "own"), there = metrics_of(folder.root / "there");
  ASSERT_EQ(own.size(), there.size());
  for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i].loss, there[i].loss) << i;
  std::ofstream(folder.root / "text") << "a file where a folder should be";
  const Ended missing = folder.train("missing", 2, with(run, {both + ":" + (folder.root / "text").string()}));
  EXPECT_NE(missing.status, 0);
  EXPECT_THAT(missing.output, testing::HasSubstr((folder.root / "text" / "rank").string()));
}

}  // namespace
}  // namespace herd::train
