// Runs of herd train in stages: they train as one rank does, save for any layout and start from any, take the memory
// that was predicted, and are refused where one stage exceeds its budget.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "layout_moves.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kRun = run_to_move({"model.layers=4", "optimizer.lr=3e-4"});

// By default each move with one of both, tied and not.
TEST(PipelineCommand, TrainsAsOneRankDoes_AndResumesAtAnyOtherLayout) {
  RunFolder folder;
  int drawn = 0;
  for (const std::string tied : {"model.tie_embeddings=true", "model.tie_embeddings=false"}) {
    const auto overrides = with(kRun, {tied});
    ASSERT_EQ(folder.train("one" + tied, 1, overrides).status, 0);
    const auto expected = metrics_of(folder.root / ("one" + tied));
    const std::pair<Layout, Layout> moves[] = {
        {{2, {"mesh.pp=2"}}, {1}},
        {{1}, {3, {"mesh.pp=3", "strategy.pipeline=gpipe"}}},
        {{4, {"mesh.pp=2", "strategy.zero=1", "strategy.recompute=full"}},
         {3, {"mesh.pp=3", "strategy.pipeline=zero_bubble_h1"}}},
        {{2, {"mesh.pp=2", "strategy.pipeline=zero_bubble_v"}}, {2, {"mesh.pp=2", "strategy.pipeline=interleaved"}}},
        {{2, {"strategy.zero=3"}}, {4, {"mesh.pp=2", "strategy.zero=3"}}}};
    for (int index = 0; const auto& move : moves) {
      if (++drawn % one_in(2, 2) != 0) continue;
      expect_moves(folder, "move" + std::to_string(index++) + tied, overrides, expected, move);
    }
  }
}

TEST(PipelineCommand, TrainsAsOneRankDoes_WhereAStageHasNothingToTrain) {
  RunFolder folder;
  for (const std::string frozen : {"h.1.* ln_f.* head.weight", "w*.weight h.0.*"}) {
    const std::vector<std::string> overrides = {"model.tie_embeddings=false", "model.frozen=" + frozen};
    const std::string name = "frozen" + frozen.substr(0, 1);
    ASSERT_EQ(folder.train(name, 1, overrides).status, 0);
    const Ended stages = folder.train(name + " stages", 2, with(overrides, {"mesh.pp=2"}));
    ASSERT_EQ(stages.status, 0) << stages.output;
    expect_same(metrics_of(folder.root / (name + " stages")), metrics_of(folder.root / name), frozen);
  }
}

TEST(PipelineCommand, TakesTheMemoryThatWasPredicted) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  RunFolder folder;
  for (const auto& [order, recompute] : {std::pair("1f1b", "none"),
                                         {"gpipe", "none"},
                                         {"1f1b", "full"},
                                         {"zero_bubble_h1", "none"},
                                         {"zero_bubble_h1", "full"},
                                         {"zero_bubble_v", "none"},
                                         {"interleaved", "none"}}) {
    const std::string name = std::string(order) + recompute;
    const Ended ended =
        folder.train(name, 2,
                     {"mesh.pp=2", "model.width=256", "model.context=128", "model.layers=4", "model.vocab=2048",
                      "train.batch=12", "train.steps=2", "train.eval_every=0",
                      std::string("strategy.pipeline=") + order, std::string("strategy.recompute=") + recompute});
    ASSERT_EQ(ended.status, 0) << ended.output;
    const StepMetrics last = metrics_of(folder.root / name).back();
    const double predicted = static_cast<double>(last.predicted_device_bytes_peak);
    EXPECT_NEAR(static_cast<double>(last.device_bytes_peak), predicted, 0.03 * predicted) << name;
  }
}

// When the first op of a kind began and the last one ended, of each micro-batch of the first step of a trace, in
// microseconds.
std::map<std::string, std::pair<double, double>> spans_of(const nlohmann::json& trace, const std::string& kind) {
  std::map<std::string, std::pair<double, double>> spans;
  std::string last = "mb0";
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    std::istringstream words(event.at("name").get<std::string>());
    std::string op, of, block, micro_batch;
    words >> op >> of >> block >> micro_batch;
    if (op != kind || event.at("ph").get<std::string>() != "X") continue;
    if (micro_batch < last) break;  // of the next step
    last = micro_batch;
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    const auto span = spans.emplace(micro_batch, std::pair(begin, end)).first;
    span->second.second = end;
  }
  return spans;
}

// The first stage makes gradients of weights while it waits for the next gradient of its output.
TEST(PipelineCommand, MakesGradientsOfWeightsWhileTheNextGradientIsOnItsWay) {
  RunFolder folder;
  const Ended ended = folder.train(
      "h1", 2,
      {"mesh.pp=2", "strategy.pipeline=zero_bubble_h1", "model.width=256", "model.context=128", "model.layers=6",
       "model.vocab=2048", "train.batch=8", "train.micro_batch=1", "train.steps=3", "train.eval_every=0"});
  ASSERT_EQ(ended.status, 0) << ended.output;
  std::ifstream file(folder.root / "h1" / "trace.json");
  const nlohmann::json trace = nlohmann::json::parse(file);
  const auto received = spans_of(trace, "receive"), weights = spans_of(trace, "backward_weight");
  ASSERT_EQ(received.size(), 8u);
  ASSERT_EQ(weights.size(), 8u);
  int filled = 0;
  for (int m = 0; m < 7; ++m) {
    const std::string own = "mb" + std::to_string(m), next = "mb" + std::to_string(m + 1);
    EXPECT_GT(weights.at(own).first, received.at(own).second);
    filled += weights.at(own).first < received.at(next).second ? 1 : 0;
  }
  EXPECT_GT(filled, 0) << "every gradient had come before the weights' gradients of the one before were begun";
}

// On four ranks each: shards, stages and recompute together, and each of them alone.
TEST(PipelineCommand, TrainsInABudgetThatNoneOfItsTechniquesFitsAlone) {
  RunFolder folder;
  const std::vector<std::string> model = {"model.width=96",  "model.context=64",    "model.layers=8",
                                          "model.vocab=512", "train.steps=3",       "train.eval_every=0",
                                          "train.batch=16",  "train.micro_batch=2", "strategy.bucket=65536"};
  const std::vector<std::string> all = {"mesh.pp=2", "mesh.fsdp=2", "strategy.zero=3", "strategy.recompute=full"};
  const Ended refused = folder.train("refused", 4, with(with(model, all), {"memory.device_budget=1KiB"}));
  const std::string before = "memory.device_budget = \"";
  const size_t at = refused.output.find(before);
  ASSERT_NE(at, std::string::npos) << refused.output;
  const size_t begin = at + before.size();
  const std::string named = refused.output.substr(begin, refused.output.find('"', begin) - begin);
  const auto budget = with(model, {"memory.device_budget=" + named});
  const Ended together = folder.train("together", 4, with(budget, all));
  EXPECT_EQ(together.status, 0) << together.output;
  const std::vector<std::vector<std::string>> each = {
      {"mesh.pp=2"}, {"strategy.zero=3"}, {"strategy.recompute=full"}, {"mesh.pp=2", "strategy.recompute=full"}};
  for (const auto& one : each) {
    const Ended alone = folder.train("alone", 4, with(budget, one));
    EXPECT_NE(alone.status, 0) << one[0];
    EXPECT_THAT(alone.output, HasSubstr("but memory.device_budget = ")) << one[0];
  }
}

TEST(PipelineCommand, RefusesABudgetThatOneStageExceeds_BeforeAnyRankStarts) {
  RunFolder folder;
  const Ended ended = folder.train("small", 2, {"mesh.pp=2", "memory.device_budget=20KiB"});
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("memory.device_budget = 20 KiB"));
  EXPECT_FALSE(fs::exists(folder.root / "small" / "metrics.jsonl"));
}

}  // namespace
}  // namespace herd::train
