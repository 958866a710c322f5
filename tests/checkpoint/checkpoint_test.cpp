// Tensors out to disk and back: same bits, any layout, every fault.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "herd/bridge/split_float.h"
#include "herd/checkpoint/loader.h"
#include "herd/checkpoint/saver.h"
#include "herd/storage/checkpoint_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

using namespace std::chrono_literals;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

std::vector<NamedTensor> some_tensors(double seed) {
  const auto f32 = at::TensorOptions(at::kFloat);
  std::vector<NamedTensor> tensors = {
      whole_tensor("block0.weight", at::arange(24, f32).reshape({4, 6}) * 0.1 + seed),
      whole_tensor("block0.weight.exp_avg", at::arange(24, f32).reshape({4, 6}) * 1e-30 + seed),
      whole_tensor("block0.weight.exp_avg_sq", at::full({4, 6}, 1e-42, f32) * seed),  // subnormal
      whole_tensor("head.weight", (at::arange(10, f32) / 3 + seed).to(at::kBFloat16)),
      whole_tensor("optimizer.step", at::full({}, static_cast<int64_t>(seed), at::TensorOptions(at::kLong))),
      whole_tensor("empty", at::empty({0, 3}, f32))};
  tensors[0].value.view({-1})[3] = std::numeric_limits<float>::quiet_NaN();
  return tensors;
}

void clear(std::vector<NamedTensor>& tensors) {
  for (auto& tensor : tensors) tensor.value.zero_();
}

FileSystem& unsynced() {
  static FaultyFileSystem files(FaultyFileSystem::Fault::kNone, 0);
  return files;
}

constexpr CheckpointSaver::Retries kQuick = {.max_attempts = 3, .first_pause = 1ms, .longest_pause = 2ms};

std::filesystem::path save_alone(const std::filesystem::path& root, int64_t step, FileSystem& files = unsynced()) {
  OnePeer peers;
  CheckpointSaver saver({.root = root, .keep = 2, .herd_version = "0.1.0", .retries = {.max_attempts = 1}}, peers,
                        files);
  saver.save({.step = step, .samples = 16 * step, .config = "# run\n", .notes = {{"threads", "1"}}},
             some_tensors(static_cast<double>(step)));
  saver.wait();
  return saver.last_saved();
}

TEST(Checkpoint, LoadsTheSameBits) {
  TemporaryFolder folder;
  CheckpointReader reader(save_alone(folder.path(), 3));
  auto tensors = some_tensors(3);
  clear(tensors);
  load_tensors(reader, tensors);
  const auto expected = some_tensors(3);
  for (size_t i = 0; i < tensors.size(); ++i)
    EXPECT_TRUE(same_bits(tensors[i].value, expected[i].value)) << tensors[i].name;
  EXPECT_EQ(reader.manifest().step, 3);
  EXPECT_EQ(reader.manifest().samples, 48);
  EXPECT_EQ(reader.manifest().notes.at("threads"), "1");
}

// Weights kept as halves are saved as what they are halves of, so that a run in any precision may load them.
TEST(Checkpoint, HalvesOfFp32NumbersAreSavedAndLoadedAsFp32) {
  const int64_t count = (1 << 20) + 7;
  at::Tensor exact = at::arange(count, at::kInt).mul_(1013).view(at::kFloat);
  exact = at::where(exact.isnan(), 1.0, exact).to(at::kFloat);
  const at::Tensor high = at::empty({count}, at::kBFloat16), low = at::empty({count}, at::kShort);
  split_float(exact, high, low);
  OnePeer peers;
  for (const bool from_halves : {true, false}) {
    TemporaryFolder folder;
    CheckpointSaver saver({.root = folder.path(), .keep = 2}, peers, unsynced());
    saver.save({.step = 1}, {from_halves ? flat_shard("w", high, {count}, 0, low) : whole_tensor("w", exact)});
    saver.wait();
    EXPECT_GE(saver.snapshot_bytes(), 4 * count);
    CheckpointReader reader(saver.last_saved());
    EXPECT_EQ(reader.manifest().tensors.at("w").dtype, DType::kF32);
    std::vector<NamedTensor> whole = {whole_tensor("w", at::zeros({count}))},
                             halves = {whole_tensor("w", at::zeros({count}, at::kBFloat16),
                                                    at::zeros({count}, at::kShort))},
                             part = {flat_shard("w", at::zeros({50}, at::kBFloat16), {count}, count - 50,
                                                at::zeros({50}, at::kShort))};
    load_tensors(reader, whole);
    load_tensors(reader, halves);
    load_tensors(reader, part);
    EXPECT_TRUE(same_bits(whole[0].value, exact));
    EXPECT_TRUE(same_bits(halves[0].value, high));
    EXPECT_TRUE(same_bits(halves[0].low_halves, low));
    EXPECT_TRUE(same_bits(part[0].value, high.narrow(0, count - 50, 50)));
    EXPECT_TRUE(same_bits(part[0].low_halves, low.narrow(0, count - 50, 50)));
  }
}

TEST(Checkpoint, TrainingMayChangeTheTensorsAsSoonAsSaveReturns) {
  TemporaryFolder folder;
  OnePeer peers;
  CheckpointSaver saver({.root = folder.path(), .keep = 2}, peers, unsynced());
  auto tensors = some_tensors(3);
  saver.save({.step = 3}, tensors);
  clear(tensors);
  saver.wait();
  CheckpointReader reader(saver.last_saved());
  load_tensors(reader, tensors);
  EXPECT_TRUE(same_bits(tensors[1].value, some_tensors(3)[1].value));
}

// Runs `body(rank, peers)` as n threads.
void run_ranks(int n, const std::function<void(Rank, CheckpointPeers&)>& body) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      StorePeers peers(store, rank, n, "checkpoint", 20s);
      body(rank, peers);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Rank r of n holds a flat shard of a 7 x 5 tensor, as ZeRO would.
NamedTensor shard_of(const at::Tensor& whole, Rank rank, int n) {
  const int64_t count = whole.numel(), begin = rank * count / n, end = (rank + 1) * count / n;
  return flat_shard("w", whole.view({-1}).slice(0, begin, end).clone(), whole.sizes().vec(), begin);
}

TEST(Checkpoint, WhatAnyNumberOfRanksSavedAnyOtherNumberLoads) {
  const at::Tensor whole = at::arange(35, at::TensorOptions(at::kFloat)).reshape({7, 5}) / 3;
  for (const int savers : {1, 2, 3, 5, 9}) {
    TemporaryFolder folder;
    run_ranks(savers, [&](Rank rank, CheckpointPeers& peers) {
      FaultyFileSystem files(FaultyFileSystem::Fault::kNone, 0);
      CheckpointSaver saver({.root = folder.path(), .keep = 2}, peers, files);
      std::vector<NamedTensor> tensors = {shard_of(whole, rank, savers)};
      if (rank == 0) tensors.push_back(whole_tensor("replicated", at::ones({3})));
      saver.save({.step = 1}, tensors);
      saver.wait();
    });
    for (const int loaders : {1, 2, 4, 8}) {
      run_ranks(loaders, [&](Rank rank, CheckpointPeers& peers) {
        const auto found = find_resumable(folder.path(), peers);
        ASSERT_TRUE(found);
        CheckpointReader reader(*found);
        std::vector<NamedTensor> tensors = {shard_of(at::zeros({7, 5}), rank, loaders),
                                            whole_tensor("replicated", at::zeros({3}))};
        load_tensors(reader, tensors);
        EXPECT_TRUE(same_bits(tensors[0].value, shard_of(whole, rank, loaders).value));
        EXPECT_TRUE(same_bits(tensors[1].value, at::ones({3})));
      });
    }
  }
}

TEST(Checkpoint, OneRanksFullDiskFailsTheSaveOnAllRanks_AndTheOldOneStays) {
  TemporaryFolder folder;
  save_alone(folder.path(), 1);
  const at::Tensor whole = at::ones({7, 5});
  run_ranks(3, [&](Rank rank, CheckpointPeers& peers) {
    FullDisk files(rank == 2);
    CheckpointSaver saver({.root = folder.path(), .keep = 2, .retries = kQuick}, peers, files);
    saver.save({.step = 2}, {shard_of(whole, rank, 3)});
    EXPECT_ERROR(saver.wait(), Code::kStorage, "rank 2", "shard-00002.safetensors", "needs", "are free", "fix:");
    EXPECT_TRUE(saver.last_saved().empty());
    files.full = false;
    saver.save({.step = 2}, {shard_of(whole, rank, 3)});  // the disk has room again
    saver.wait();
    EXPECT_EQ(saver.last_saved().filename(), "step-00000002");
  });
  OnePeer alone;
  EXPECT_EQ(find_resumable(folder.path(), alone)->filename(), "step-00000002");
}

TEST(Checkpoint, AFailedSaveIsTriedAgain_UntilTheNextTakesItsPlace_WhileAnOlderOneStands) {
  TemporaryFolder folder;
  const at::Tensor whole = at::ones({7, 5});
  std::atomic<bool> has_room = false;
  run_ranks(2, [&](Rank rank, CheckpointPeers& peers) {
    FullDisk files(false);
    CheckpointSaver saver({.root = folder.path(), .keep = 2, .retries = kQuick}, peers, files);
    const auto save = [&](int64_t step) { saver.save({.step = step}, {shard_of(whole, rank, 2)}); };
    save(1);
    saver.wait();
    files.full = rank == 1;
    save(2);
    save(3);
    save(4);  // rank 0 has given up two by now, and no rank has thrown
    if (rank == 1) {
      for (int i = 0; i < 1000 && files.refused < 2 + 2 * kQuick.max_attempts; ++i) std::this_thread::sleep_for(10ms);
      EXPECT_GE(files.refused, 2 + 2 * kQuick.max_attempts) << "it is tried for as long as training goes on";
      EXPECT_FALSE(saver.failed());
    }
    files.full = false;
    if (rank == 1) has_room = true;
    while (!has_room) std::this_thread::sleep_for(1ms);
    saver.wait();
    EXPECT_EQ(saver.last_saved().filename(), "step-00000004");
    EXPECT_EQ(saver.times().saves, 2);
  });
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& one : list_checkpoints(folder.path())) steps.push_back(one.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 1}));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000002")) << "what was cut short takes no room";
}

TEST(Checkpoint, TheLastSaveHasSoManyAttempts_ThenItIsAnError) {
  TemporaryFolder folder;
  save_alone(folder.path(), 1);
  OnePeer peers;
  FullDisk files;
  CheckpointSaver saver({.root = folder.path(), .keep = 2, .retries = {.max_attempts = 3, .first_pause = 60s}}, peers,
                        files);
  saver.save({.step = 2}, some_tensors(2));
  for (int i = 0; i < 1000 && files.refused == 0; ++i) std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(files.refused, 1) << "the pause goes on";
  files.full = false;
  saver.wait();  // ends the pause
  EXPECT_EQ(saver.last_saved().filename(), "step-00000002");
}

TEST(Checkpoint, SaysThatTheSaveBehindHasFailed_WhereNoOlderOneStands) {
  TemporaryFolder folder;
  OnePeer peers;
  FullDisk files;
  CheckpointSaver saver({.root = folder.path(), .keep = 2, .retries = kQuick}, peers, files);
  EXPECT_FALSE(saver.failed());
  saver.save({.step = 1}, some_tensors(1));
  for (int i = 0; i < 1000 && !saver.failed(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(saver.failed());
  EXPECT_EQ(files.refused, kQuick.max_attempts);
  EXPECT_ERROR(saver.wait(), Code::kStorage, "fix:");
  EXPECT_FALSE(saver.failed()) << "it was told";
  files.full = false;
  saver.save({.step = 2}, some_tensors(2));
  saver.wait();
  EXPECT_EQ(saver.times().saves, 1);
  EXPECT_GT(saver.times().background_ms, 0);
  EXPECT_GE(saver.snapshot_bytes(), 3 * 24 * 4 + 10 * 2 + 8);
}

TEST(Checkpoint, AFaultAtAnyCallLeavesOneThatLoads) {
  FaultyFileSystem counted(FaultyFileSystem::Fault::kNone, 0);
  {
    TemporaryFolder folder;
    for (int64_t step = 1; step <= 3; ++step) save_alone(folder.path(), step, counted);
  }
  for (const auto fault : {FaultyFileSystem::Fault::kFail, FaultyFileSystem::Fault::kDie}) {
    for (int call = 0; call < counted.calls(); ++call) {
      TemporaryFolder folder;
      FaultyFileSystem files(fault, call);
      int64_t saved = 0;
      for (int64_t step = 1; step <= 3; ++step) {
        try {
          save_alone(folder.path(), step, files);
          saved = step;
        } catch (const Error&) {
        } catch (const Died&) {
          break;
        }
      }
      OnePeer alone;
      const auto found = find_resumable(folder.path(), alone);
      if (!found) {
        EXPECT_EQ(saved, 0) << "call " << call;
        continue;
      }
      CheckpointReader reader(*found);
      EXPECT_GE(reader.manifest().step, saved);
      auto tensors = some_tensors(0);
      load_tensors(reader, tensors);
      EXPECT_TRUE(same_bits(tensors[1].value, some_tensors(static_cast<double>(reader.manifest().step))[1].value));
    }
  }
}

TEST(Checkpoint, NamesWhatIsMissingExtraOrOfAnotherShape_BeforeTouchingAnything) {
  TemporaryFolder folder;
  CheckpointReader reader(save_alone(folder.path(), 3));
  auto tensors = some_tensors(9);
  tensors.pop_back();
  tensors.push_back(whole_tensor("block1.weight", at::zeros({2})));
  EXPECT_ERROR(load_tensors(reader, tensors), Code::kBadConfig, "lacks block1.weight", "this run does not, empty",
               "fix:");
  tensors.pop_back();
  load_tensors(reader, tensors, {"empty"});  // another rank loads it
  tensors = some_tensors(9);
  tensors[4].value = tensors[4].value.to(at::kInt);
  EXPECT_ERROR(load_tensors(reader, tensors), Code::kBadConfig, "optimizer.step", "int64", "int32");
  tensors[4] = whole_tensor("optimizer.step", at::zeros({2}, at::kLong));
  EXPECT_ERROR(load_tensors(reader, tensors), Code::kBadConfig, "optimizer.step", "[2]");
  EXPECT_TRUE(same_bits(tensors[1].value, some_tensors(9)[1].value));
}

TEST(Checkpoint, ConvertsBetweenTypesOfFloatingNumbers) {
  TemporaryFolder folder;
  CheckpointReader reader(save_alone(folder.path(), 3));
  auto tensors = some_tensors(0);
  tensors[1].value = tensors[1].value.to(at::kBFloat16);
  tensors[3].value = tensors[3].value.to(at::kFloat);
  load_tensors(reader, tensors);
  const auto saved = some_tensors(3);
  EXPECT_TRUE(same_bits(tensors[1].value, saved[1].value.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(tensors[3].value, saved[3].value.to(at::kFloat)));
}

TEST(Checkpoint, LoadsIntoViewsThatAreNotContiguous) {
  TemporaryFolder folder;
  CheckpointReader reader(save_alone(folder.path(), 3));
  const at::Tensor memory = at::zeros({6, 4});
  std::vector<NamedTensor> tensors = {{"block0.weight.exp_avg", memory.t(), whole_slice({4, 6}), {4, 6}}};
  load_tensors(reader, tensors,
               {"block0.weight", "block0.weight.exp_avg_sq", "head.weight", "optimizer.step", "empty"});
  EXPECT_TRUE(same_bits(memory.t().contiguous(), some_tensors(3)[1].value));
}

}  // namespace
}  // namespace herd
