// Runs of herd train whose gradients move in a codec: they train nearly as others do, send less, hold what is
// predicted, and leave checkpoints that any run takes. By default a slice of the runs; HERD_FULL_TESTS=1 has all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "layout_moves.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

const std::vector<std::string> kRun = run_to_move({"optimizer.lr=3e-4"});
const std::string kCompressed = "strategy.compression=bf16";

TEST(CompressionCommand, TrainsAsOthersDo_AndCheckpointsMoveBothWays) {
  RunFolder folder;
  ASSERT_EQ(folder.train("plain", 1, kRun).status, 0);
  const auto expected = metrics_of(folder.root / "plain");
  const Tolerance within{1e-4, 0x1p-7};  // a sum of gradients is off by 2^-8 of its terms; losses by far less
  const std::pair<Layout, Layout> moves[] = {
      {{2, {kCompressed}}, {2}},
      {{3, {kCompressed, "strategy.zero=1"}}, {2, {kCompressed}}},
      {{4, {kCompressed, "strategy.zero=1", "mesh.fsdp=2"}}, {4, {kCompressed, "mesh.pp=2"}}},
      {{4, {"strategy.zero=3"}}, {4, {kCompressed, "mesh.tp=2", "strategy.offload=states"}}}};
  int index = 0;
  for (const auto& move : moves) {
    if (++index % one_in(3, 3) == 0) expect_moves(folder, "move" + std::to_string(index), kRun, expected, move, within);
  }
}

const std::vector<std::string> kCodecs = {"topk", "int8", "int4"};

std::vector<std::string> coded(const std::string& codec, std::vector<std::string> more = {}) {
  more.insert(more.begin(), "strategy.compression=" + codec);
  if (codec == "topk") more.push_back("strategy.compression_ratio=0.1");
  return more;
}

// The same run again, and from the checkpoint in its middle, has the same losses: what encoding loses is in the
// checkpoint. Two ranks and three train nearly as one.
TEST(CompressionCommand, KeepsWhatEncodingLoses_InCheckpoints) {
  RunFolder folder;
  ASSERT_EQ(folder.train("plain", 1, kRun).status, 0);
  const auto plain = metrics_of(folder.root / "plain");
  int index = 0;
  for (const std::string& codec : kCodecs) {
    const auto run = with(kRun, coded(codec));
    for (const int ranks : {2, 3}) {
      if (++index % one_in(5, 5) != 0) continue;
      const std::string name = codec + std::to_string(ranks);
      const Ended ended = folder.train(name, ranks, run);
      ASSERT_EQ(ended.status, 0) << ended.output;
      const auto expected = metrics_of(folder.root / name);
      EXPECT_NEAR(expected.back().loss, plain.back().loss, 0.03 * plain.back().loss) << name;
      for (const StepMetrics& step : expected) {
        ASSERT_TRUE(step.compression_ratio && step.compression_error) << name;
        EXPECT_GT(*step.compression_ratio, codec == "int4" ? 6 : codec == "int8" ? 3 : 4) << name;
        EXPECT_GT(*step.compression_error, 0) << name;
        EXPECT_LT(*step.compression_error, 1) << name;
      }
      fs::remove_all(folder.root / name / "checkpoints" / checkpoint_folder_name(steps_to_move()));
      const Ended resumed = folder.train(name, ranks, run);
      ASSERT_EQ(resumed.status, 0) << resumed.output;
      EXPECT_THAT(resumed.output, testing::Not(testing::HasSubstr("left out")));
      const auto again = metrics_of(folder.root / name);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(again[i].loss, expected[i].loss) << name << " step " << i;
    }
  }
}

// As all-reduces do, so do pushes to parameter servers, however many ranks serve, and whether ranks run ahead or not.
TEST(CompressionCommand, KeepsWhatEncodingPushesLoses_InCheckpoints) {
  RunFolder folder;
  int index = 0;
  for (const std::string& codec : kCodecs) {
    if (++index % one_in(3, 3) != 1 % one_in(3, 3)) continue;
    const auto run = with(kRun, coded(codec, {"optimizer.clip=0", "strategy.sync=server", "strategy.servers=1"}));
    const Ended ended = folder.train(codec, 3, run);
    ASSERT_EQ(ended.status, 0) << ended.output;
    const auto expected = metrics_of(folder.root / codec);
    for (const StepMetrics& step : expected) {
      ASSERT_TRUE(step.compression_ratio && step.compression_error) << codec;
      EXPECT_GT(*step.compression_ratio, 3) << codec;
      EXPECT_GT(*step.compression_error, 0) << codec;
      EXPECT_LT(*step.compression_error, 1) << codec;
    }
    const auto predicted = static_cast<double>(expected.back().predicted_device_bytes_peak);
    EXPECT_NEAR(static_cast<double>(expected.back().device_bytes_peak), predicted, 0.03 * predicted) << codec;
    const auto again = [&](const std::vector<std::string>& more) {
      fs::remove_all(folder.root / codec / "checkpoints" / checkpoint_folder_name(steps_to_move()));
      const Ended resumed = folder.train(codec, 3, with(run, more));
      EXPECT_EQ(resumed.status, 0) << resumed.output;
      return resumed.output;
    };
    EXPECT_THAT(again({"strategy.servers=2"}), testing::Not(testing::HasSubstr("left out")));
    const auto resumed = metrics_of(folder.root / codec);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(resumed[i].loss, expected[i].loss) << codec << " step " << i;
  }
  const auto ahead =
      with(kRun, coded("int8", {"optimizer.clip=0", "strategy.sync=server_async", "strategy.servers=1"}));
  ASSERT_EQ(folder.train("ahead", 2, ahead).status, 0);
  fs::remove_all(folder.root / "ahead" / "checkpoints" / checkpoint_folder_name(steps_to_move()));
  const Ended resumed = folder.train("ahead", 2, ahead);
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, testing::Not(testing::HasSubstr("left out")));
  const auto losses = metrics_of(folder.root / "ahead");  // of a few steps, in whatever order ranks came
  EXPECT_NEAR(losses.back().loss, losses.front().loss, 0.1);
}

// Residuals belong to a rank among as many: another number of ranks starts with none, says so, and trains on.
TEST(CompressionCommand, StartsWithoutResiduals_AtAnotherNumberOfRanks) {
  RunFolder folder;
  const auto run = with(kRun, coded("topk"));
  int index = 0;
  for (const auto& [ranks, more, says] : {std::tuple{2, std::vector<std::string>{"strategy.compression=int8"}, true},
                                          std::tuple{2, std::vector<std::string>{"strategy.compression=none"}, false},
                                          std::tuple{3, std::vector<std::string>{}, true}}) {
    if (++index % one_in(3, 3) != 0) continue;
    const std::string name = "moved" + std::to_string(index);
    ASSERT_EQ(folder.train(name, 2, run).status, 0);
    const double before = metrics_of(folder.root / name).back().loss;
    fs::remove_all(folder.root / name / "checkpoints" / checkpoint_folder_name(steps_to_move()));
    const Ended moved = folder.train(name, ranks, with(run, more));
    ASSERT_EQ(moved.status, 0) << moved.output;
    EXPECT_EQ(moved.output.find("what encoding gradients has lost before is left out") != std::string::npos, says)
        << moved.output;
    EXPECT_NEAR(metrics_of(folder.root / name).back().loss, before, 0.03 * before);
  }
}

TEST(CompressionCommand, LeavesGradientsAsTheyAreInItsWarmup) {
  RunFolder folder;
  const std::vector<std::string> run = {"train.steps=6", "train.eval_every=0"};
  ASSERT_EQ(folder.train("plain", 2, run).status, 0);
  const auto plain = metrics_of(folder.root / "plain");
  int index = 0;
  for (const std::string& codec : kCodecs) {
    if (++index % one_in(2, 2) != 0) continue;
    ASSERT_EQ(folder.train(codec, 2, with(run, coded(codec, {"strategy.compression_warmup=4"}))).status, 0);
    const auto warmed = metrics_of(folder.root / codec);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(warmed[i].compression_error.has_value(), i >= 4) << codec;
      if (i < 5) {
        EXPECT_EQ(warmed[i].loss, plain[i].loss) << codec << " step " << i;
      }
    }
    EXPECT_NE(warmed[5].loss, plain[5].loss) << codec;
  }
}

TEST(CompressionCommand, SendsWhatItStates_AndHoldsWhatIsPredicted) {
  RunFolder folder;
  const std::vector<std::string> run = {"model.width=256", "model.context=64", "model.layers=4",    "model.vocab=2048",
                                        "train.batch=4",   "train.steps=4",    "train.eval_every=0"};
  ASSERT_EQ(folder.train("plain", 2, run).status, 0);
  const auto plain = static_cast<double>(metrics_of(folder.root / "plain").back().bytes_sent);
  const std::pair<std::string, std::string> codecs[] = {
      {"bf16", "1"}, {"int4", "0"}, {"bf16", "0"}, {"topk", "0"}, {"int8", "0"}};
  int index = 0;
  for (const auto& [codec, zero] : codecs) {
    if (++index % one_in(5, 5) != 0) continue;
    const std::string name = codec + zero;
    const Ended ended = folder.train(name, 2, with(run, coded(codec, {"strategy.zero=" + zero})));
    ASSERT_EQ(ended.status, 0) << ended.output;
    const StepMetrics last = metrics_of(folder.root / name).back();
    // A list is sent to each other rank, where an all-reduce of two ranks sends each element once. With ZeRO-1 gathers
    // of the weights, which stay as they are, may fall into either step.
    const double ratio = codec == "bf16" ? 2 : *last.compression_ratio;
    if (zero == "0") {
      EXPECT_NEAR(static_cast<double>(last.bytes_sent), plain / ratio, 0.02 * plain) << codec;
    }
    const auto predicted = static_cast<double>(last.predicted_device_bytes_peak);
    EXPECT_NEAR(static_cast<double>(last.device_bytes_peak), predicted, 0.03 * predicted) << name;
  }
}

// What is encoded again after a restart is what was sent before it, and any other run goes on with the exact weights.
TEST(CompressionCommand, GathersTheSameAfterARestart) {
  RunFolder folder;
  const std::vector<std::string> gathers = {"strategy.zero=3", "strategy.gather_codec=int8"};
  const std::vector<std::pair<int, std::vector<std::string>>> layouts = {
      {2, {"strategy.precision=bf16"}},
      {2, {}},
      {4, {"mesh.fsdp=2"}},
      {4, {"strategy.secondary_shard=true", "mesh.ranks_per_host=2"}},
      {2, {"strategy.offload=states"}}};
  int index = 0;
  for (const auto& [ranks, more] : layouts) {
    if (++index % one_in(2, 4) != 0) continue;
    const std::string name = "gathers" + std::to_string(index);
    const auto overrides = with(gathers, more);
    ASSERT_EQ(folder.train(name, ranks, with(kRun, overrides)).status, 0);
    const auto expected = metrics_of(folder.root / name);
    const Layout same{ranks, overrides};
    expect_moves(folder, name + "again", kRun, expected, {same, same}, {0, 0});
    if (more.empty()) expect_moves(folder, name + "exact", kRun, expected, {same, {1}}, {0.01, 0.5});
  }
}

// With HERD_FULL_TESTS=1 200 steps on the text that scripts/train tokenizes, where it is there; else the run of this
// file, which is shorter. Where losses fall steeply, a step differs more than the end does.
TEST(CompressionCommand, LearnsAsMuchOfWeightsInEightBits_AndOfGradientsInFour) {
  RunFolder folder;
  const fs::path source = std::getenv("HERD_SOURCE_DIR"), text = source / "data/kjv";
  std::vector<std::string> run = {"train.steps=40", "train.eval_every=40", "optimizer.lr=1e-3"};
  if (one_in(2, 2) == 1) {
    if (!fs::exists(text)) GTEST_SKIP() << "no " << text.string() << ", which scripts/train makes";
    fs::copy_file(source / "examples/gpt_kjv.toml", folder.root / "run.toml", fs::copy_options::overwrite_existing);
    run = {"train.steps=200", "train.eval_every=200", "checkpoint.every=-1", "data.path=" + text.string(),
           "log.dir=" + folder.root.string()};
  }
  run.push_back("strategy.zero=3");
  const std::pair<int, std::vector<std::string>> codecs[] = {
      {2, {"strategy.gather_codec=int8"}},
      {2, {"strategy.compression=int8"}},
      {2, {"strategy.compression=int4"}},
      {2, {"strategy.gather_codec=int8", "strategy.compression=int4"}},
      {4,  // on hosts of two
       {"strategy.gather_codec=int8", "strategy.compression=int4", "strategy.secondary_shard=true",
        "mesh.ranks_per_host=2"}}};
  std::map<int, std::vector<StepMetrics>> exact_of;  // by ranks
  int index = 0;
  for (const auto& [ranks, codec] : codecs) {
    if (index++ % one_in(4, 4) != 0) continue;  // the first and the last of five
    const std::string name = "coded" + std::to_string(index), plain = "exact" + std::to_string(ranks);
    auto& exact = exact_of[ranks];
    if (exact.empty()) {
      ASSERT_EQ(folder.train(plain, ranks, run).status, 0);
      exact = metrics_of(folder.root / plain);
    }
    ASSERT_EQ(folder.train(name, ranks, with(run, codec)).status, 0);
    const auto coded = metrics_of(folder.root / name);
    ASSERT_EQ(coded.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i)
      EXPECT_NEAR(coded[i].loss, exact[i].loss, 0.03 * exact[i].loss) << name << ", step " << i;
    EXPECT_NEAR(coded.back().loss, exact.back().loss, 0.01 * exact.back().loss) << name;
    EXPECT_NEAR(*coded.back().val_loss, *exact.back().val_loss, 0.01 * *exact.back().val_loss) << name;
    EXPECT_LT(coded.back().bytes_sent, exact.back().bytes_sent) << name;
  }
}

TEST(CompressionCommand, ComposesWithOtherTechniques) {
  RunFolder folder;
  ASSERT_EQ(folder.train("plain", 1, kRun).status, 0);
  const double plain = metrics_of(folder.root / "plain").back().loss;
  const std::vector<std::pair<int, std::vector<std::string>>> layouts = {
      {4, {"mesh.tp=2"}},
      {4, {"mesh.pp=2"}},
      {2, {"strategy.recompute=full", "train.micro_batch=1"}},
      {2, {"strategy.precision=bf16", "strategy.gradient_precision=fp32"}},
      {2, {"strategy.offload=window"}},
      {2, {"strategy.offload=states"}},
      {2, {"strategy.offload=nvme", "optimizer.clip=0"}},
      {2, {"strategy.compression_levels=quantiles", "optimizer.clip=0"}},
      {4, {"mesh.cp=2", "mesh.pp=2"}},
      {4, {"mesh.cp=2"}}};
  int index = 0;
  for (const auto& [ranks, overrides] : layouts) {
    if (++index % one_in(5, 5) != 0) continue;
    const std::string codec = kCodecs[static_cast<size_t>(index) % kCodecs.size()],
                      name = "layout" + std::to_string(index);
    const Ended ended = folder.train(name, ranks, with(kRun, with(coded(codec), overrides)));
    ASSERT_EQ(ended.status, 0) << codec << "\n" << ended.output;
    EXPECT_NEAR(metrics_of(folder.root / name).back().loss, plain, 0.03 * plain) << name << " " << codec;
  }
}

}  // namespace
}  // namespace herd::train
