// Runs of herd train whose layers ranks share: they train as one rank does, alone and with everything else, save for
// any layout and start from any, take the memory that was predicted, and are refused where ranks can't share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layout_moves.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

// A vocabulary that two ranks don't share alike.
const std::vector<std::string> kRun =
    run_to_move({"model.layers=4", "model.heads=4", "model.vocab=301", "optimizer.lr=3e-4", "model.dropout=0.1"});

// By default each move with one of both, tied and not.
TEST(TensorCommand, TrainsAsOneRankDoes_AndResumesAtAnyOtherLayout) {
  RunFolder folder;
  int drawn = 0;
  for (const std::string tied : {"model.tie_embeddings=true", "model.tie_embeddings=false"}) {
    const auto overrides = with(kRun, {tied});
    ASSERT_EQ(folder.train("one" + tied, 1, overrides).status, 0);
    const auto expected = metrics_of(folder.root / ("one" + tied));
    const std::pair<Layout, Layout> moves[] = {
        {{2, {"mesh.tp=2"}}, {1}},
        {{1}, {4, {"mesh.tp=4", "strategy.sequence_parallel=false"}}},
        {{8, {"mesh.tp=2", "mesh.pp=2", "strategy.zero=1", "strategy.recompute=full"}}, {4, {"mesh.tp=4"}}},
        {{2, {"strategy.zero=3"}}, {4, {"mesh.tp=2", "strategy.zero=3"}}},
        {{4, {"mesh.tp=2", "strategy.keep_gathered=false", "strategy.recompute=full"}},
         {4, {"mesh.tp=4", "strategy.keep_gathered=false", "strategy.recompute=every:2"}}},
        {{4, {"mesh.tp=4", "strategy.keep_gathered=false"}},
         {4, {"mesh.tp=2", "mesh.pp=2", "strategy.pipeline=zero_bubble_h1", "strategy.keep_gathered=false"}}}};
    ++drawn;  // the other half
    for (int index = 0; const auto& move : moves) {
      if (++drawn % one_in(2, 2) != 0) continue;
      expect_moves(folder, "move" + std::to_string(index++) + tied, overrides, expected, move);
    }
  }
}

// Two key heads on four ranks, then one on two and on four; the second half with the keys shared in another way.
TEST(TensorCommand, TrainsAsOneRankDoes_WhereSeveralRanksHoldTheSameKeys) {
  RunFolder folder;
  int drawn = 0;
  const std::vector<std::string> llama = {"model.kind=llama",  "model.layers=2",      "model.heads=8",
                                          "model.ffn=64",      "model.norm_eps=1e-6", "model.tie_embeddings=false",
                                          "model.head_width=8"};
  for (const std::string key_heads : {"model.kv_heads=2", "model.kv_heads=1"}) {
    const auto overrides = with(with(kRun, llama), {"model.layers=2", "model.heads=8", key_heads});
    ASSERT_EQ(folder.train("one" + key_heads, 1, overrides).status, 0);
    const auto expected = metrics_of(folder.root / ("one" + key_heads));
    const std::pair<Layout, Layout> moves[] = {
        {{4, {"mesh.tp=4"}}, {2, {"mesh.tp=2", "strategy.sequence_parallel=false"}}},
        {{8, {"mesh.tp=4", "strategy.zero=3"}}, {8, {"mesh.tp=4", "mesh.pp=2", "strategy.recompute=full"}}},
        {{1}, {8, {"mesh.tp=8", "strategy.sequence_parallel=false"}}}};
    for (int index = 0; const auto& move : moves) {
      if (++drawn % one_in(2, 2) != 0) continue;
      expect_moves(folder, "move" + std::to_string(index++) + key_heads, overrides, expected, move);
    }
  }
}

// By default each form on two ranks or on four; the two that are compared on both.
TEST(TensorCommand, TakesTheMemoryThatWasPredicted) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  RunFolder folder;
  const std::vector<std::string> whole = {}, gathered_again = {"strategy.keep_gathered=false"};
  int index = 0;
  for (const std::string tp : {"2", "4"}) {
    std::map<std::string, double> predictions;
    ++index;  // the other half
    for (const std::vector<std::string>& form : {whole,
                                                 {"strategy.sequence_parallel=false"},
                                                 gathered_again,
                                                 {"strategy.recompute=full"},
                                                 {"strategy.recompute=full", "strategy.keep_gathered=false"},
                                                 {"strategy.precision=bf16"},
                                                 {"model.dropout=0.1"},
                                                 {"model.kv_heads=1"},
                                                 {"model.kv_heads=1", "strategy.precision=bf16"},
                                                 {"model.kv_heads=2", "model.kind=llama", "strategy.zero=2"}}) {
      if (++index % one_in(2, 2) != 0 && form != whole && form != gathered_again) continue;
      const std::string name = "memory" + std::to_string(index);
      const Ended ended = folder.train(
          name, std::stoi(tp),
          with({"mesh.tp=" + tp, "model.width=256", "model.heads=4", "model.context=128", "model.layers=4",
                "model.vocab=2048", "train.batch=2", "train.steps=2", "train.eval_every=0", "checkpoint.every=-1"},
               form));
      ASSERT_EQ(ended.status, 0) << ended.output;
      const StepMetrics last = metrics_of(folder.root / name).back();
      const double predicted = static_cast<double>(last.predicted_device_bytes_peak);
      EXPECT_NEAR(static_cast<double>(last.device_bytes_peak), predicted, 0.03 * predicted)
          << "tp " << tp << " " << testing::PrintToString(form);
      predictions[testing::PrintToString(form)] = predicted;
    }
    const auto of = [&](const std::vector<std::string>& form) { return predictions.at(testing::PrintToString(form)); };
    EXPECT_LT(of(gathered_again), 0.98 * of(whole)) << "tp " << tp;
  }
}

TEST(TensorCommand, RefusesWhatRanksCannotShare_BeforeAnyOfThemStarts) {
  RunFolder folder;
  const std::pair<std::vector<std::string>, std::string> refused[] = {
      {{"mesh.tp=4"}, "mesh.tp must divide model.heads: 2 % 4 = 2\n  fix: mesh.tp = 2"},
      {{"mesh.tp=2", "model.ffn=65"}, "mesh.tp must divide model.ffn: 65 % 2 = 1\n  fix: mesh.tp = 1"},
      {{"mesh.tp=3"}, "mesh.tp must divide model.heads: 2 % 3 = 2\n  fix: mesh.tp = 1"},
      {{"mesh.tp=6", "model.heads=12", "model.kv_heads=4", "model.head_width=2"},
       "mesh.tp must divide model.kv_heads or be a multiple of it: 4 % 6 = 4, 6 % 4 = 2\n  fix: mesh.tp = 4"},
      {{"mesh.tp=4", "model.heads=4", "model.vocab=3"},
       "mesh.tp must not exceed model.vocab, of which each rank has a part: 4 > 3\n  fix: mesh.tp = 3 or less, or "
       "model.vocab = 4 or more"},
  };
  for (const auto& [overrides, text] : refused) {
    const int ranks = overrides[0].back() - '0';
    const Ended ended = folder.train("refused", ranks, overrides);
    EXPECT_EQ(ended.status, 2);
    EXPECT_THAT(ended.output, HasSubstr(text));
    EXPECT_FALSE(fs::exists(folder.root / "refused"));
  }
}

}  // namespace
}  // namespace herd::train
