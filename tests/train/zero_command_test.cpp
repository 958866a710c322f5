// Runs of herd train whose states are in shards: their checkpoints, their memory, and what they say when they fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "command.h"
#include "herd/spec/run_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/metrics.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

using testing::HasSubstr;

std::vector<StepMetrics> metrics_of(const fs::path& run) { return read_metrics(run / "metrics.jsonl"); }

std::vector<std::string> zero(int stage, std::vector<std::string> more = {}) {
  more.push_back("strategy.zero=" + std::to_string(stage));
  return more;
}

TEST(ZeroCommand, ResumesFromAnyStageAndNumberOfRanks_AtAnyOther) {
  RunFolder folder;
  ASSERT_EQ(folder.train("whole", 1).status, 0);
  const auto expected = metrics_of(folder.root / "whole");
  struct Layout {
    int stage, ranks, fsdp = 1;
    std::string shard = "slices";
    std::vector<std::string> overrides() const {
      return zero(stage, {"mesh.fsdp=" + std::to_string(fsdp), "strategy.shard=" + shard});
    }
  };
  const std::pair<Layout, Layout> moves[] = {{{3, 3}, {0, 1}},
                                             {{0, 1}, {3, 4}},
                                             {{2, 4}, {1, 3}},
                                             {{3, 4, 2}, {0, 2}},
                                             {{0, 2}, {3, 4, 2}},
                                             {{3, 4, 1, "layers"}, {2, 3, 1, "layers"}},
                                             {{1, 4}, {3, 2, 1, "layers"}}};
  int index = 0;
  for (const auto& [from, to] : moves) {
    const std::string name = "move" + std::to_string(index++);
    const Ended first = folder.train(name, from.ranks, from.overrides());
    ASSERT_EQ(first.status, 0) << first.output;
    const fs::path folders = folder.root / name / "checkpoints";
    EXPECT_EQ(CheckpointReader(folders / checkpoint_folder_name(12)).manifest().files.size(),
              static_cast<size_t>(from.ranks));
    fs::remove_all(folders / checkpoint_folder_name(12));
    const Ended second = folder.train(name, to.ranks, to.overrides());
    ASSERT_EQ(second.status, 0) << second.output;
    EXPECT_THAT(second.output, HasSubstr("resumed from"));
    const auto steps = metrics_of(folder.root / name);
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(steps[i].loss, expected[i].loss, 2e-6 * expected[i].loss);
    EXPECT_NEAR(*steps.back().val_loss, *expected.back().val_loss, 2e-6 * *expected.back().val_loss);
  }
}

// The gather of a step may end in the step after it: what is traced, or the last, has no such step.
TEST(ZeroCommand, CountsEveryGatherInTheTimeAndBytesOfAStep) {
  RunFolder folder;
  const auto bytes_of_run = [&](const std::string& trace_steps) {
    const Ended ended =
        folder.train("trace" + trace_steps, 2,
                     zero(1, {"model.width=256", "model.vocab=2048", "train.steps=6", "train.eval_every=0",
                              "checkpoint.every=-1", "log.trace_steps=" + trace_steps}));
    EXPECT_EQ(ended.status, 0) << ended.output;
    int64_t bytes = 0;
    for (const StepMetrics& one : metrics_of(folder.root / ("trace" + trace_steps))) bytes += one.bytes_sent;
    return bytes;
  };
  const int64_t plain = bytes_of_run("0");
  EXPECT_EQ(bytes_of_run("5"), plain);
  EXPECT_EQ(bytes_of_run("2"), plain);
}

TEST(ZeroCommand, ResumesWithFrozenParameters_AtAnotherStagePrecisionAndNumberOfRanks) {
  RunFolder folder;
  const std::string frozen = "model.frozen=wte.weight h.0.* *.bias";
  ASSERT_EQ(folder.train("whole", 1, {frozen}).status, 0);
  const auto expected = metrics_of(folder.root / "whole");
  const Ended first = folder.train("run", 3, zero(3, {frozen}));
  ASSERT_EQ(first.status, 0) << first.output;
  fs::remove_all(folder.root / "run" / "checkpoints" / checkpoint_folder_name(12));
  const Ended second = folder.train("run", 2, zero(1, {frozen}));
  ASSERT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, HasSubstr("resumed from"));
  const auto steps = metrics_of(folder.root / "run");
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(steps[i].loss, expected[i].loss, 2e-6 * expected[i].loss);
  // All of a model's weights start a run in which other parameters are frozen.
  const Ended next = folder.train(
      "next", 2, {"model.frozen=h.1.*", "model.weights=" + (folder.root / "run").string(), "strategy.precision=bf16"});
  ASSERT_EQ(next.status, 0) << next.output;
  EXPECT_LT(metrics_of(folder.root / "next").front().loss, expected.front().loss);
}

TEST(ZeroCommand, ResumesInAnotherPrecision) {
  RunFolder folder;
  ASSERT_EQ(folder.train("whole", 1).status, 0);
  const auto expected = metrics_of(folder.root / "whole");
  const auto precision = [](const std::string& name) { return "strategy.precision=" + name; };
  for (const auto& [from, to] : {std::pair("bf16", "fp32"), std::pair("fp32", "fp16")}) {
    const std::string name = std::string(from) + "-" + to;
    const Ended first = folder.train(name, 2, zero(3, {precision(from)}));
    ASSERT_EQ(first.status, 0) << first.output;
    fs::remove_all(folder.root / name / "checkpoints" / checkpoint_folder_name(12));
    const Ended second = folder.train(name, 3, zero(1, {precision(to)}));
    ASSERT_EQ(second.status, 0) << second.output;
    EXPECT_THAT(second.output, HasSubstr("resumed from"));
    const auto steps = metrics_of(folder.root / name);
    ASSERT_EQ(steps.size(), expected.size());
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_NEAR(steps[i].loss, expected[i].loss, 0.015 * expected[i].loss);
  }
}

TEST(ZeroCommand, PredictsWhatTheAllocatorCounts) {
  // What oneDNN takes beside a product of bf16 hangs on the processor (docs/design/traps.md).
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  RunFolder folder;
  struct Kind {
    int stage;
    const char *precision, *recompute, *dropout;
    bool long_context = false;  // T x T matrices are most of its memory
    const char* frozen = "none";
    const char* gradients = "same";
    const char* norm = "layernorm";
  };
  for (int index = 0;
       const Kind& kind :
       {Kind{1, "fp32", "none", "0"}, Kind{2, "bf16", "none", "0"}, Kind{3, "fp32", "none", "0"},
        Kind{0, "fp16", "none", "0"}, Kind{3, "fp16", "none", "0"}, Kind{1, "fp32", "selective", "0.1"},
        Kind{3, "fp16", "selective", "0.1"}, Kind{1, "fp32", "none", "0.1", true},
        Kind{1, "fp32", "selective", "0.1", true}, Kind{1, "bf16", "selective", "0.1", true},
        Kind{3, "bf16", "none", "0", false, "wpe.weight h.0.* *.bias"}, Kind{1, "fp32", "none", "0", false, "w* h.0.*"},
        Kind{2, "bf16", "none", "0", false, "none", "fp32"}, Kind{0, "bf16", "none", "0.1", false, "none", "fp32"},
        Kind{3, "fp16", "full", "0", false, "none", "fp32"},
        Kind{1, "bf16", "none", "0", false, "none", "same", "rmsnorm"},
        Kind{2, "fp16", "none", "0", false, "none", "same", "rmsnorm"}}) {
    if (index++ % one_in(2, 2) != 0) continue;
    const std::string name = std::to_string(kind.stage) + " " + kind.precision + " " + kind.recompute + " " +
                             kind.dropout + (kind.long_context ? " long" : "") + " frozen " +
                             std::to_string(std::string(kind.frozen).size()) + " gradients " + kind.gradients + " " +
                             kind.norm;
    const Ended ended = folder.train(
        name, 2,
        zero(kind.stage,
             {std::string("strategy.precision=") + kind.precision, std::string("strategy.recompute=") + kind.recompute,
              std::string("model.dropout=") + kind.dropout, kind.long_context ? "model.width=64" : "model.width=256",
              kind.long_context ? "model.heads=8" : "model.heads=4",
              kind.long_context ? "model.context=256" : "model.context=128", "model.vocab=2048",
              std::string("model.norm=") + kind.norm, std::string("model.frozen=") + kind.frozen,
              std::string("strategy.gradient_precision=") + kind.gradients, "train.steps=2", "train.eval_every=0"}));
    ASSERT_EQ(ended.status, 0) << ended.output;
    const StepMetrics last = metrics_of(folder.root / name).back();
    const double predicted = static_cast<double>(last.predicted_device_bytes_peak);
    EXPECT_NEAR(static_cast<double>(last.device_bytes_peak), predicted, 0.03 * predicted) << name;
    const std::string page = slurp(folder.root / name / "report.html");
    EXPECT_THAT(page, HasSubstr("as its allocator counted it"));
    EXPECT_THAT(page, HasSubstr("most: "));
    EXPECT_THAT(page, HasSubstr("MiB of every op"));
  }
}

// A step whose weights and states are most of its memory.
const std::vector<std::string> kWide = {"model.width=128", "model.layers=8", "train.eval_every=0", "train.steps=3",
                                        "checkpoint.every=-1"};

std::vector<std::string> wide(std::vector<std::string> more) {
  more.insert(more.begin(), kWide.begin(), kWide.end());
  return more;
}

TEST(ZeroCommand, SaysWhatWouldFit_AndTrainsIt_WhereHerdMayChoose) {
  RunFolder folder;
  const std::string budget = "memory.device_budget=20MiB";
  const Ended refused = folder.train("refused", 2, wide({budget}));
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.output, HasSubstr("kOverBudget"));
  EXPECT_THAT(refused.output, HasSubstr("what fits with the same numbers"));
  EXPECT_FALSE(fs::exists(folder.root / "refused"));

  // What herd chooses sums no gradients by an all-reduce.
  const Ended unused = folder.train("unused", 2, wide({budget, "strategy.auto=true", "comm.algorithm=ring"}));
  EXPECT_EQ(unused.status, 2) << unused.output;
  EXPECT_THAT(unused.output, HasSubstr("comm.algorithm = \"ring\" is of the gradient all-reduce"));

  const Ended chosen = folder.train("chosen", 2, wide({budget, "strategy.auto=true"}));
  ASSERT_EQ(chosen.status, 0) << chosen.output;
  EXPECT_THAT(chosen.output, HasSubstr("strategy.auto: "));
  EXPECT_THAT(slurp(folder.root / "chosen/run.json"), HasSubstr("strategy.auto: "));
  const spec::RunFile resolved = spec::parse_run_file(folder.root / "chosen/config.toml");
  EXPECT_FALSE(resolved.strategy.automatic);
  EXPECT_GT(resolved.strategy.zero, 0);

  ASSERT_EQ(folder.train("whole", 2, wide({})).status, 0);
  const auto expected = metrics_of(folder.root / "whole"), steps = metrics_of(folder.root / "chosen");
  ASSERT_EQ(steps.size(), expected.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].loss, expected[i].loss, 2e-6 * expected[i].loss);
    EXPECT_LE(steps[i].device_bytes_peak, int64_t{20} << 20);
  }
}

TEST(ZeroCommand, SaysByHowMuchTheNearestMisses_WhereNothingFits) {
  RunFolder folder;
  const Ended ended = folder.train("run", 2, wide({"memory.device_budget=1MiB", "strategy.auto=true"}));
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.output, HasSubstr("strategy.auto found nothing that fits"));
  EXPECT_THAT(ended.output, HasSubstr("too much"));
  EXPECT_FALSE(fs::exists(folder.root / "run"));
}

TEST(ZeroCommand, NamesTheGroup_WhenAGradientIsNotFinite) {
  RunFolder folder;
  const Ended ended = folder.train("run", 2, zero(3, {"optimizer.lr=1e9", "optimizer.warmup_steps=0"}));
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.output, testing::AnyOf(HasSubstr("the norm of the gradient is"), HasSubstr("the loss is")));
  EXPECT_THAT(ended.output, HasSubstr("first seen by rank"));
}

// The number after `before` in `text`; 0 if there is none.
int64_t number_after(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  return at == std::string::npos ? 0 : std::stoll(text.substr(at + before.size()));
}

TEST(ZeroCommand, RunsWithTheBudgetThatARefusalNames_AndNotWithLess_WhateverThePrecision) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // docs/design/traps.md
  RunFolder folder;
  struct Kind {
    int ranks, zero;
    std::vector<std::string> more;
  };
  const std::string rms = "model.norm=rmsnorm", dropout = "model.dropout=0.1";
  const auto precision = [](const std::string& name) { return "strategy.precision=" + name; };
  const Kind kinds[] = {{1, 0, {precision("fp32")}},
                        {1, 0, {precision("bf16"), rms}},
                        {2, 0, {precision("fp16"), rms, dropout}},
                        {2, 1, {precision("bf16"), "optimizer.momentum_precision=bf16"}},
                        {2, 2, {precision("bf16"), "strategy.recompute=full", "strategy.gradient_precision=fp32"}},
                        {2, 3, {precision("fp16"), "model.frozen=w* h.0.*"}},
                        {2, 3, {precision("bf16"), rms, "strategy.recompute=selective", dropout}},
                        {2, 0, {precision("bf16"), "mesh.pp=2", "train.micro_batch=1"}}};
  for (const Kind& kind : kinds) {
    const std::string name = "kind" + std::to_string(&kind - kinds);
    const auto train = [&](const std::string& budget) {
      std::vector<std::string> all = zero(kind.zero, {"model.width=128", "model.context=64", "model.vocab=2000",
                                                      "train.steps=3", "memory.device_budget=" + budget});
      all.insert(all.end(), kind.more.begin(), kind.more.end());
      fs::remove_all(folder.root / name);
      return folder.train(name, kind.ranks, all);
    };
    const Ended refused = train("1KiB");
    EXPECT_NE(refused.status, 0);
    const int64_t needed = number_after(refused.output, "memory.device_budget = \"");
    ASSERT_GT(needed, 1024) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(std::to_string(needed) + "KiB\""));
    const Ended ended = train(std::to_string(needed) + "KiB");
    EXPECT_EQ(ended.status, 0) << name << " with " << needed << " KiB: " << ended.output;
    EXPECT_NE(train(std::to_string(needed - 1) + "KiB").status, 0) << name;
    EXPECT_NE(train(std::to_string(needed - 1024) + "KiB").status, 0) << name;
  }
}

}  // namespace
}  // namespace herd::train
