// The same bits in other shards.
#include "herd/convert/reshard.h"

#include <gtest/gtest.h>

#include "model_fixture.h"
#include "tests/storage/checkpoint_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;

TEST(Reshard, KeepsEveryBit_AndThereAndBackIsTheSameFolder) {
  TemporaryFolder root;
  const auto two = save_model(root / "runs", small_run(), 2);
  const auto before = contents_of(two);
  CheckpointReader saved(two);
  ASSERT_EQ(before.size(), 3u);
  for (const int ranks : {1, 2, 3, 5, 64}) {
    const auto other = root / ("for" + std::to_string(ranks)), back = root / ("back" + std::to_string(ranks));
    const Resharded done = reshard({.source = two, .out = other, .ranks = ranks}, unsynced_files());
    CheckpointReader reader(other);
    EXPECT_EQ(static_cast<size_t>(done.files), reader.manifest().files.size());
    reader.verify();
    for (const auto& [name, tensor] : saved.manifest().tensors)
      EXPECT_EQ(bytes_of(saved, name), bytes_of(reader, name)) << name;
    reshard({.source = other, .out = back, .ranks = 2}, unsynced_files());
    EXPECT_EQ(contents_of(back), before);
  }
}

TEST(Reshard, GivesEachRankItsPartOfEachGroup) {
  Manifest manifest{.config = spec::to_toml(small_run())};
  for (const Weight& weight : weights_of(small_run())) manifest.tensors[weight.name] = {DType::kF32, weight.shape, {}};
  manifest.tensors["count"] = {DType::kI64, {}, {}};
  const auto shards = shards_of(manifest, 3);
  ASSERT_EQ(shards.size(), 3u);
  // wte has 101 * 36 = 3636 elements: ceil(3636 / 48) * 16 = 1216 to a rank
  for (int rank = 0; rank < 3; ++rank) {
    const ShardPiece& first = shards[static_cast<size_t>(rank)].front();
    EXPECT_EQ(first.name, "wte.weight");
    EXPECT_EQ(first.slice.elements, (IndexRange{rank * 1216, std::min(3636, (rank + 1) * 1216)}));
  }
  EXPECT_EQ(shards[0].back().name, "count");
}

TEST(Reshard, PutsACheckpointWithoutARunFileIntoOneFileOnly) {
  TemporaryFolder root;
  const auto folder = save_numbers(root / "runs", 3);
  Manifest bare = read_manifest(folder);
  bare.config.clear();
  write_manifest(folder, bare, unsynced_files());
  EXPECT_ERROR(reshard({.source = folder, .out = root / "out", .ranks = 2}, unsynced_files()), Code::kBadConfig,
               "holds no run file", "fix: --ranks 1");
  EXPECT_EQ(reshard({.source = folder, .out = root / "out", .ranks = 1}, unsynced_files()).files, 1);
  EXPECT_EQ(load_numbers(root / "out"), load_numbers(folder));
  EXPECT_EQ(bytes_of(root / "out", "count"), bytes_of(folder, "count"));
}

TEST(Reshard, PutsAChainIntoOneFileOnly) {
  TemporaryFolder root;
  const auto folder = save_numbers(root / "runs", 3);
  Manifest of_chain = read_manifest(folder);
  spec::RunFile run;
  run.model.kind = "chain";
  of_chain.config = spec::to_toml(run);
  write_manifest(folder, of_chain, unsynced_files());
  EXPECT_ERROR(reshard({.source = folder, .out = root / "out", .ranks = 2}, unsynced_files()), Code::kBadConfig,
               "holds a chain", "fix: --ranks 1");
  EXPECT_EQ(reshard({.source = folder, .out = root / "out", .ranks = 1}, unsynced_files()).files, 1);
  EXPECT_EQ(load_numbers(root / "out"), load_numbers(folder));
}

TEST(Reshard, RefusesLayoutsThatThereCanNotBe) {
  TemporaryFolder root;
  const auto folder = save_model(root / "runs", small_run());
  EXPECT_ERROR(reshard({.source = folder, .out = root / "out", .ranks = 0}), Code::kBadConfig, "0 ranks", "fix:");
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Reshard, FindsDamageWhileItReads_AndLeavesNothing) {
  TemporaryFolder root;
  const auto folder = save_model(root / "runs", small_run());
  std::string shard = read_text(folder / "shard-00001.safetensors");
  shard[shard.size() / 2] = static_cast<char>(shard[shard.size() / 2] ^ 1);
  write_text(folder / "shard-00001.safetensors", shard);
  EXPECT_ERROR(reshard({.source = folder, .out = root / "out", .ranks = 3}), Code::kCorruptFile,
               "shard-00001.safetensors at byte", "checksum", "fix:");
  EXPECT_EQ(contents_of(root.path() / "runs").size(), 1u);
  EXPECT_FALSE(fs::exists(root / "out"));
}

TEST(Reshard, AFaultAtAnyCallLeavesOldOrNewWhole) {
  TemporaryFolder root;
  const auto source = save_model(root / "runs", small_run(), 1);
  const auto old = save_model(root / "old", small_run({"train.seed=2"}), 1);
  const ReshardOptions options{.source = source, .out = root / "out", .ranks = 2, .replace = Replace::kModels};
  FaultyFileSystem counted(FaultyFileSystem::Fault::kNone, 0);
  reshard(options, counted);
  const auto whole_new = contents_of(options.out), whole_old = contents_of(old);
  for (const auto fault : {FaultyFileSystem::Fault::kFail, FaultyFileSystem::Fault::kDie}) {
    for (int call = 0; call < counted.calls(); ++call) {
      fs::remove_all(options.out);
      fs::copy(old, options.out);
      FaultyFileSystem files(fault, call);
      try {
        reshard(options, files);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kStorage) << error.what();
      } catch (const Died&) {
      }
      const auto left = contents_of(options.out);
      EXPECT_TRUE(left == whole_new || left == whole_old) << "call " << call;
    }
  }
}

TEST(Reshard, TellsHowFarItIs) {
  TemporaryFolder root;
  const auto folder = save_model(root / "runs", small_run());
  int64_t last = 0, all = 0;
  reshard({.source = folder, .out = root / "out", .ranks = 3, .progress = [&](int64_t done, int64_t total) {
             EXPECT_GT(done, last);
             last = done;
             all = total;
           }});
  EXPECT_EQ(last, all);
  EXPECT_GT(all, 0);
}

}  // namespace
}  // namespace herd::convert
