// Runs of herd train whose experts several ranks hold: they train as one rank does, save for any layout and start from
// any, and say what does not go with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "layout_moves.h"
#include "tests/convert/model_fixture.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kRun =
    run_to_move({"model.kind=moe", "model.layers=2", "model.experts=4", "model.top_k=2", "model.expert_ffn=24",
                 "model.norm=rmsnorm", "model.norm_eps=1e-6", "model.balance_loss=0.02", "model.bias_balancing=0.01",
                 "optimizer.lr=3e-4"});

TEST(ExpertsCommand, TrainsAsOneRankDoes_AndResumesAtAnyOtherLayout) {
  RunFolder folder;
  ASSERT_EQ(folder.train("one", 1, kRun).status, 0);
  const auto expected = metrics_of(folder.root / "one");
  const std::pair<Layout, Layout> moves[] = {
      {{2, {"mesh.ep=2"}}, {4, {"mesh.ep=4", "strategy.zero=2"}}},
      {{4, {"mesh.ep=2", "strategy.zero=1"}}, {1}},
      {{1}, {2, {"mesh.ep=2", "strategy.recompute=full"}}},
      {{2, {"strategy.zero=3"}}, {4, {"mesh.ep=2", "mesh.pp=2", "strategy.offload=states"}}},
      {{4, {"mesh.ep=2", "strategy.zero=3"}}, {2}},
      {{4, {"mesh.ep=2", "mesh.fsdp=2"}}, {4, {"mesh.ep=4", "strategy.zero=3"}}}};
  int index = 0;
  for (const auto& move : moves) {
    if (++index % one_in(2, 2) != 0) continue;
    expect_moves(folder, "move" + std::to_string(index), kRun, expected, move);
  }
}

TEST(ExpertsCommand, ResumesWhereTensorRanksShareAttention) {
  RunFolder folder;
  const std::vector<std::string> run = with(kRun, {"model.balance_loss=0"});
  ASSERT_EQ(folder.train("one", 1, run).status, 0);
  expect_moves(folder, "move", run, metrics_of(folder.root / "one"),
               {{4, {"mesh.tp=2", "mesh.ep=2", "strategy.zero=1"}}, {2, {"mesh.ep=2"}}});
}

// A capacity drops, a bias balances, and both are told.
TEST(ExpertsCommand, TellsHowTokensAreSharedAmongExperts) {
  RunFolder folder;
  const Ended ended = folder.train("told", 2, with(kRun, {"model.capacity_factor=1", "train.steps=8", "mesh.ep=2"}));
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, testing::ContainsRegex("experts [1-4]\\.[0-9][0-9]x  dropped [0-9.]+ %"));
  const StepMetrics last = metrics_of(folder.root / "told").back();
  ASSERT_EQ(last.expert_load.size(), 2U);
  for (const std::vector<int64_t>& layer : last.expert_load) {
    EXPECT_EQ(layer.size(), 4U);
    EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), int64_t{0}), 2 * last.tokens);
  }
  EXPECT_GT(*last.expert_dropped, 0);
  EXPECT_EQ(last.close_choices, std::vector<int64_t>(2, 0));
  const std::string report = slurp(folder.root / "told" / "report.html");
  for (const char* words : {"Load of the experts", "Dispatch to experts", "gradients of rows back", "predicted hidden",
                            "measured bytes sent"})
    EXPECT_THAT(report, HasSubstr(words));
}

// Weights whose routers have pairs of experts with all but the same scores.
TEST(ExpertsCommand, ComparesLayoutsByTheSameRouting_WhereChoicesAreClose) {
  RunFolder folder;
  std::vector<std::string> run = with(kRun, {"train.steps=2", "train.eval_every=0", "model.top_k=3",
                                             "model.frozen=*router.weight", "model.bias_balancing=0"});
  const spec::RunFile model = spec::parse_run_file((folder.root / "run.toml").string(), run);
  const size_t D = static_cast<size_t>(model.model.width);
  const fs::path weights =
      convert::save_model(folder.root / "weights", model, 1, [&](const std::string& name, std::vector<float>& values) {
        if (!name.ends_with("router.weight")) return;
        for (size_t i = 0; i < values.size(); ++i)
          if (i / D % 2 == 1) values[i] = std::nextafter(values[i - D], 1.0F);
      });
  run.push_back("model.weights=" + weights.string());
  std::vector<std::string> words = {(fs::path(std::getenv("HERD_BINARY_DIR")) / "herd").string(),
                                    "parity",
                                    (folder.root / "run.toml").string(),
                                    "--a",
                                    "mesh.ep=1",
                                    "--b",
                                    "mesh.ep=2"};
  words.insert(words.end(), run.begin(), run.end());
  Command parity(words, folder.root / "parity.output");
  EXPECT_EQ(parity.wait(), 0) << parity.output();
  EXPECT_THAT(parity.output(), HasSubstr("so b takes those of a"));
}

// Biases keep experts busy alike that nothing else balances, and cost no loss: means of the last tenth of the steps.
// With HERD_FULL_TESTS=1 300 steps on the text that scripts/train tokenizes, where it is there; else a short run of
// this file, whose load need only come nearer to even.
TEST(ExpertsCommand, BiasesBalanceExpertsOfRealText) {
  const bool full = one_in(2, 2) == 1;
  const fs::path source = std::getenv("HERD_SOURCE_DIR"), text = source / "data/kjv";
  RunFolder folder;
  std::vector<std::string> run = with(kRun, {"model.balance_loss=0", "model.experts=8", "model.top_k=1",
                                             "train.batch=24", "train.steps=80", "optimizer.lr=3e-3"});
  if (full) {
    if (!fs::exists(text)) GTEST_SKIP() << "no " << text.string() << ", which scripts/train makes";
    fs::copy_file(source / "examples/moe_kjv.toml", folder.root / "run.toml", fs::copy_options::overwrite_existing);
    run = {"train.steps=300",     "train.eval_every=0",         "train.threads=1",
           "checkpoint.every=-1", "data.path=" + text.string(), "log.dir=" + folder.root.string(),
           "model.balance_loss=0"};
  }
  const auto end_of = [&](const std::string& speed) {
    const Ended ended = folder.train(speed, 2, with(run, {"model.bias_balancing=" + speed}));
    EXPECT_EQ(ended.status, 0) << ended.output;
    const std::vector<StepMetrics> steps = metrics_of(folder.root / speed);
    const size_t last = std::max<size_t>(steps.size() / 10, 1);
    std::pair<double, double> means;  // of imbalance and loss
    for (size_t i = steps.size() - std::min(last, steps.size()); i < steps.size(); ++i) {
      means.first += *steps[i].expert_imbalance / static_cast<double>(last);
      means.second += steps[i].loss / static_cast<double>(last);
    }
    return means;
  };
  const auto [unbalanced, loss] = end_of("0");
  const auto [balanced, loss_with_bias] = end_of("0.002");
  std::printf("imbalance %.2f, with a bias %.2f; loss %.4f, with a bias %.4f\n", unbalanced, balanced, loss,
              loss_with_bias);
  EXPECT_LT(balanced, full ? 1.3 : 0.7 * unbalanced);
  EXPECT_GT(unbalanced, full ? 2 : 1);
  EXPECT_NEAR(loss_with_bias, loss, 0.01 * loss);
}

TEST(ExpertsCommand, SaysWhatDoesNotGoWithExpertsOnSeveralRanks) {
  RunFolder folder;
  const Ended refused = folder.train("refused", 2, with(kRun, {"mesh.ep=2", "strategy.schedule=priority"}));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.output, HasSubstr("strategy.schedule = \"priority\" beside mesh.ep = 2 is not in this version\n"
                                        "  fix: strategy.schedule = \"fifo\", or mesh.ep = 1"));
}

}  // namespace
}  // namespace herd::train
