// Runs of herd train whose gradients move in 16 bits: they train as others do within the rounding of a sum, send about
// half as much, hold what is predicted, and leave checkpoints that any run takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout_moves.h"

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
  for (const auto& move : moves) expect_moves(folder, "move" + std::to_string(index++), kRun, expected, move, within);
}

TEST(CompressionCommand, SendsHalf_AndHoldsWhatIsPredicted) {
  RunFolder folder;
  const std::vector<std::string> model = {"model.width=256",   "model.context=64", "model.layers=4",
                                          "model.vocab=2048",  "train.batch=4",    "train.steps=4",
                                          "train.eval_every=0"};
  for (const std::string zero : {"0", "1"}) {
    const auto run = with(model, {"strategy.zero=" + zero});
    ASSERT_EQ(folder.train("plain" + zero, 2, run).status, 0);
    const Ended ended = folder.train("coded" + zero, 2, with(run, {kCompressed}));
    ASSERT_EQ(ended.status, 0) << ended.output;
    const StepMetrics plain = metrics_of(folder.root / ("plain" + zero)).back(),
                      coded = metrics_of(folder.root / ("coded" + zero)).back();
    // With ZeRO-1 gathers of the weights, which stay as they are, may fall into either step.
    if (zero == "0") {
      EXPECT_NEAR(static_cast<double>(coded.bytes_sent), 0.5 * static_cast<double>(plain.bytes_sent),
                  0.01 * static_cast<double>(plain.bytes_sent));
    }
    const auto predicted = static_cast<double>(coded.predicted_device_bytes_peak);
    EXPECT_NEAR(static_cast<double>(coded.device_bytes_peak), predicted, 0.03 * predicted) << zero;
  }
}

}  // namespace
}  // namespace herd::train
