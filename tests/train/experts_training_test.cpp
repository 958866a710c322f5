// Models with experts train as one rank trains them, in layouts of one to four ranks; a pass that is computed again
// chooses the same experts.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/convert/model_fixture.h"
#include "tests/support/expect_error.h"
#include "tests/support/sample.h"
#include "tests/support/temporary_folder.h"
#include "train_in_threads.h"

namespace herd::train {
namespace {

constexpr int kSteps = 20;

spec::RunFile moe_run(const std::string& more = "") {
  return spec::parse_run_text(
      "[model]\nkind = \"moe\"\nlayers = 3\nwidth = 24\nheads = 2\nkv_heads = 1\ncontext = 8\nvocab = 40\nffn = 20\n"
      "experts = 5\ntop_k = 2\nbalance_loss = 0.05\nz_loss = 1e-3\n[data]\nkind = \"random\"\n"
      "[train]\nbatch = 12\nmicro_batch = 1\n[optimizer]\nlr = 3e-3\n" +
          more,
      "test");
}

spec::RunFile with(spec::RunFile run, const std::vector<std::string>& overrides) {
  return spec::parse_run_text(spec::to_toml(run), "test", overrides);
}

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

std::string first_apart(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > 1e-6 * b[i])
      return "step " + std::to_string(i + 1) + ": " + std::to_string(a[i]) + " and " + std::to_string(b[i]);
  return "";
}

void expect_trained_as(const Trained& many, const Trained& one, const char* layout) {
  EXPECT_LE(worst_difference(many.losses, one.losses), 2e-6) << layout << " " << first_apart(many.losses, one.losses);
  EXPECT_LE(worst_difference(many.norms, one.norms), 1e-4) << layout << " " << first_apart(many.norms, one.norms);
  EXPECT_NEAR(many.validation, one.validation, 2e-6 * one.validation) << layout;
}

struct LayoutCase {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};

class ExpertsTraining : public testing::TestWithParam<LayoutCase> {};

TEST_P(ExpertsTraining, LosesAsOneRankDoes) {
  static const Trained one = train_in_threads(with(moe_run(), {"train.micro_batch=12"}), 1, kSteps);
  const auto& [name, ranks, overrides] = GetParam();
  const Trained many = train_in_threads(with(moe_run(), overrides), ranks, kSteps);
  EXPECT_LT(one.losses.back(), one.losses.front() - 0.01);
  EXPECT_LE(worst_difference(many.losses, one.losses), 2e-6) << first_apart(many.losses, one.losses);
  EXPECT_NEAR(many.validation, one.validation, 2e-6 * one.validation);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ExpertsTraining,
    testing::Values(LayoutCase{"MicroBatches", 1, {"train.micro_batch=5"}},
                    LayoutCase{"DataParallel", 2, {"train.micro_batch=6"}},
                    LayoutCase{"DataParallelUneven", 4, {"train.micro_batch=2", "train.batch=12"}},
                    LayoutCase{"Zero1", 2, {"strategy.zero=1"}}, LayoutCase{"Zero2", 3, {"strategy.zero=2"}},
                    LayoutCase{"Zero3Recomputed", 3, {"strategy.zero=3", "strategy.recompute=full"}},
                    LayoutCase{"Hybrid", 4, {"strategy.zero=3", "mesh.fsdp=2"}},
                    LayoutCase{"Pipeline", 2, {"mesh.pp=2", "train.micro_batch=3"}},
                    LayoutCase{"PipelineZeroBubble", 3, {"mesh.pp=3", "strategy.pipeline=zero_bubble_h1"}},
                    LayoutCase{"PipelineInterleaved",
                               4,
                               {"mesh.pp=2", "strategy.pipeline=interleaved", "strategy.stages_per_rank=2",
                                "strategy.zero=1", "strategy.recompute=every:2"}},
                    LayoutCase{"OnTheHost", 2, {"strategy.zero=2", "strategy.offload=states"}}),
    [](const auto& one) { return std::string(one.param.name); });

// Six experts, which two or three ranks hold in equal parts.
class ExpertsOfRanks : public testing::TestWithParam<LayoutCase> {};

TEST_P(ExpertsOfRanks, LoseAsOneRankDoes) {
  const spec::RunFile run = with(moe_run(), {"model.experts=6"});
  static const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kSteps);
  const auto& [name, ranks, overrides] = GetParam();
  const Trained many = train_in_threads(with(run, overrides), ranks, kSteps);
  expect_trained_as(many, one, name);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ExpertsOfRanks,
    testing::Values(
        LayoutCase{"Two", 2, {"mesh.ep=2"}}, LayoutCase{"TwoOfFour", 4, {"mesh.ep=2"}},
        LayoutCase{"ThreeUneven", 3, {"mesh.ep=3", "train.micro_batch=3"}},
        LayoutCase{"Zero1", 4, {"mesh.ep=2", "strategy.zero=1"}},
        LayoutCase{"Zero2Recomputed", 4, {"mesh.ep=2", "strategy.zero=2", "strategy.recompute=full"}},
        LayoutCase{"Zero3", 4, {"mesh.ep=2", "strategy.zero=3"}},
        LayoutCase{"Zero3Alone", 3, {"mesh.ep=3", "strategy.zero=3", "strategy.recompute=every:2"}},
        LayoutCase{"Hybrid", 4, {"mesh.ep=2", "mesh.fsdp=2", "strategy.zero=2"}},
        LayoutCase{"HybridStages", 4, {"mesh.ep=2", "mesh.fsdp=2", "mesh.pp=2"}},
        LayoutCase{"Pipeline", 4, {"mesh.ep=2", "mesh.pp=2"}},
        LayoutCase{
            "PipelineZeroBubble", 4, {"mesh.ep=2", "mesh.pp=2", "strategy.pipeline=zero_bubble_h1", "strategy.zero=1"}},
        LayoutCase{"ByTurns", 2, {"mesh.ep=2", "strategy.interleave_micro_batches=2", "train.micro_batch=3"}},
        LayoutCase{"OnTheHost", 2, {"mesh.ep=2", "strategy.offload=states"}},
        LayoutCase{"Window", 2, {"mesh.ep=2", "strategy.offload=window"}},
        LayoutCase{"WindowZero1", 4, {"mesh.ep=2", "strategy.offload=window", "strategy.zero=1"}},
        LayoutCase{"WindowZero3", 4, {"mesh.ep=2", "strategy.offload=window", "strategy.zero=3"}}),
    [](const auto& one) { return std::string(one.param.name); });

// An update of the gradients of the step before: as on one rank, whose own follows its definition
// (chain_training_test.cpp).
TEST(ExpertsTraining, OfRanksDelayUpdatesAsOneRankDoes) {
  const spec::RunFile run = with(moe_run(), {"model.experts=6", "strategy.offload=states"});
  const std::string delayed = "strategy.delayed_update=true";
  const Trained exact = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kSteps);
  const Trained one = train_in_threads(with(run, {delayed, "train.micro_batch=12"}), 1, kSteps);
  EXPECT_GT(worst_difference(one.losses, exact.losses), 1e-4);
  const std::pair<int, std::vector<std::string>> layouts[] = {
      {2, {"mesh.ep=2"}},
      {4, {"mesh.ep=2", "strategy.zero=1", "strategy.offload=nvme"}},
      {4, {"mesh.ep=2", "strategy.zero=3", "strategy.recompute=full"}},
      {4, {"mesh.ep=2", "mesh.pp=2", "optimizer.clip=0", "health.check_finite=false"}}};
  for (const auto& [ranks, overrides] : layouts) {
    std::vector<std::string> all = overrides;
    all.push_back(delayed);
    const Trained many = train_in_threads(with(run, all), ranks, kSteps);
    EXPECT_LE(worst_difference(many.losses, one.losses), 2e-6)
        << overrides.back() << " " << first_apart(many.losses, one.losses);
    EXPECT_NEAR(many.validation, one.validation, 2e-6 * one.validation);
  }
}

// Tokens go once to each host that has experts of theirs, forward and in gradients, recomputed or not.
TEST(ExpertsTraining, OnTwoHostsIsAsOnOne) {
  const spec::RunFile run =
      with(moe_run(), {"model.experts=8", "model.top_k=3", "mesh.ep=4", "strategy.recompute=every:2"});
  const Trained one = train_in_threads(run, 4, 6);
  const Trained two = train_in_threads(run, 4, 6, {}, family_source(), {0, 0, 1, 1});
  EXPECT_LE(worst_difference(two.losses, one.losses), 2e-6) << first_apart(two.losses, one.losses);
  EXPECT_LE(worst_difference(two.norms, one.norms), 1e-5) << first_apart(two.norms, one.norms);
  EXPECT_EQ(two.expert_load, one.expert_load);
}

// A rank holds experts alone that no other has, so four ranks hold them once or twice in all.
TEST(ExpertsTraining, RanksHoldPartsOfTheExperts) {
  const spec::RunFile run = with(moe_run(), {"model.experts=4"});
  const auto held = [&](const char* ep) {
    return train_in_threads(with(run, {std::string("mesh.ep=") + ep}), 4, 1).held.at(MemoryLabel::kStates);
  };
  const int64_t experts = int64_t{3} * 4 * 3 * 20 * 24 * 8;  // layers, experts, matrices, and two moments of 4 bytes
  EXPECT_NEAR(static_cast<double>(held("1") - held("4")), static_cast<double>(3 * experts), 4096);
  EXPECT_NEAR(static_cast<double>(held("2") - held("4")), static_cast<double>(experts), 4096);
  // ZeRO cuts them over the ranks that hold the same ones, so that all ranks hold one copy of everything.
  const auto held_in_shards = [&](const char* ep) {
    const std::string key = std::string("mesh.ep=") + ep;
    return train_in_threads(with(run, {key, "strategy.zero=3"}), 4, 1).held;
  };
  auto once = held_in_shards("1");
  for (const char* ep : {"2", "4"}) {
    auto held_by_parts = held_in_shards(ep);
    for (const MemoryLabel label : {MemoryLabel::kWeights, MemoryLabel::kStates})
      EXPECT_NEAR(static_cast<double>(held_by_parts[label]), static_cast<double>(once[label]), 8192) << ep;
  }
}

TEST(ExpertsTraining, RecomputedPassesChooseTheSameExperts) {
  const Trained kept = train_in_threads(moe_run(), 2, 6);
  for (const char* recompute : {"full", "sqrt"}) {
    const Trained again = train_in_threads(with(moe_run(), {std::string("strategy.recompute=") + recompute}), 2, 6);
    EXPECT_EQ(again.losses, kept.losses) << recompute;
    EXPECT_EQ(again.norms, kept.norms) << recompute;
  }
}

// Checkpoints whose routers have pairs of experts with all but the same scores.
std::string weights_of_close_choices(const std::filesystem::path& root, const spec::RunFile& run) {
  const auto pair_up = [&](const std::string& name, std::vector<float>& values) {
    if (!name.ends_with("router.weight")) return;
    const size_t D = static_cast<size_t>(run.model.width);
    for (size_t i = 0; i < values.size(); ++i)
      if (i / D % 2 == 1) values[i] = std::nextafter(values[i - D], 1.0F);
  };
  return convert::save_model(root, run, 1, pair_up).string();
}

// Of three experts a token the last one and the next are such a pair, so rounding decides between them, and layouts
// round differently. With the experts that one rank has recorded they train as it does.
TEST(ExpertsTraining, WithCloseChoicesIsAsOnOneRank_WhereItsRoutingIsReplayed) {
  constexpr int kFewSteps = 3;
  const TemporaryFolder folder;
  spec::RunFile run = with(moe_run(), {"model.experts=6", "model.top_k=3", "model.frozen=*router.weight"});
  run.model.weights = weights_of_close_choices(folder.path() / "weights", run);
  const std::string routing = (folder.path() / "routing").string();
  const Trained one =
      train_in_threads(with(run, {"train.micro_batch=12", "train.record_routing=" + routing}), 1, kFewSteps);
  EXPECT_EQ(one.close, std::vector<int64_t>(kFewSteps, run.train.batch * run.model.context * run.model.layers));
  double worst_of_own = 0;
  int index = 0;
  for (const LayoutCase& layout :
       {LayoutCase{"Experts", 2, {"mesh.ep=2"}},
        LayoutCase{"RecomputedZero1", 4, {"mesh.ep=2", "strategy.zero=1", "strategy.recompute=full"}},
        LayoutCase{"Ring", 2, {"mesh.cp=2", "mesh.ep=2", "strategy.context=ring"}},
        LayoutCase{"Stages", 4, {"mesh.ep=2", "mesh.pp=2", "train.micro_batch=3"}}}) {
    if (index++ % one_in(3, 3) != 0) continue;
    const Trained own = train_in_threads(with(run, layout.overrides), layout.ranks, kFewSteps);
    EXPECT_EQ(own.close, one.close) << layout.name;
    worst_of_own = std::max(worst_of_own, worst_difference(own.losses, one.losses));
    std::vector<std::string> replays = layout.overrides;
    replays.push_back("train.replay_routing=" + routing);
    const Trained many = train_in_threads(with(run, replays), layout.ranks, kFewSteps);
    EXPECT_LE(worst_difference(many.losses, one.losses), 2e-6) << layout.name << first_apart(many.losses, one.losses);
    EXPECT_LE(worst_difference(many.norms, one.norms), 1e-4) << layout.name << first_apart(many.norms, one.norms);
    EXPECT_EQ(many.expert_load, one.expert_load) << layout.name;
    EXPECT_EQ(many.close, one.close) << layout.name;
  }
  EXPECT_GT(worst_of_own, 2e-6);  // else nothing was compared
}

// A record of many ranks holds what each of them has chosen, with biases that the run that replays it lacks.
TEST(ExpertsTraining, ReplaysWhatManyRanksHaveRecorded) {
  const TemporaryFolder folder;
  const std::string key = "_routing=" + folder.path().string();
  const spec::RunFile run = with(moe_run(), {"model.experts=4", "model.capacity_factor=0.8", "model.context=7",
                                             "model.balance_loss=0.3", "mesh.cp=2", "mesh.ep=2"});
  const Trained recorded =
      train_in_threads(with(run, {"train.record" + key, "mesh.pp=2", "model.bias_balancing=0.1"}), 4, 3);
  const spec::RunFile other = with(run, {"train.replay" + key, "mesh.cp=1", "mesh.ep=4"});
  const Trained replayed = train_in_threads(other, 4, 3);
  EXPECT_LE(worst_difference(replayed.losses, recorded.losses), 2e-6);
  EXPECT_EQ(replayed.expert_load, recorded.expert_load);
  EXPECT_EQ(replayed.dropped, recorded.dropped);
}

// The losses of routers are of training alone, and change it.
TEST(ExpertsTraining, RoutersLossesAddToTheLossAndMoveTheRouter) {
  const std::vector<std::string> none = {"model.balance_loss=0", "model.z_loss=0"};
  const Trained with_losses = train_in_threads(moe_run(), 1, 3),
                without = train_in_threads(with(moe_run(), none), 1, 3);
  EXPECT_NEAR(with_losses.losses[0] - without.losses[0], 3 * 0.05 + 3 * 1e-3 * std::log(5.0) * std::log(5.0), 0.01);
  const auto router = [](const Trained& run) { return run.weights.at("h.1.router.weight"); };
  EXPECT_GT((router(with_losses) - router(without)).abs().max().item<float>(), 1e-5);
}

// Counts are those of all ranks and of each micro-batch once, so layouts move the biases alike.
TEST(ExpertsTraining, BiasesMoveAlikeInAnyLayout) {
  const spec::RunFile run =
      with(moe_run(), {"model.balance_loss=0", "model.z_loss=0", "model.bias_balancing=0.001", "model.experts=6"});
  const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kSteps);
  const Trained without = train_in_threads(with(run, {"model.bias_balancing=0"}), 1, kSteps);
  EXPECT_EQ(one.buffers.size(), 3U);
  for (const auto& [name, bias] : one.buffers) EXPECT_GE(bias.abs().max().item<float>(), 0.002F) << name;
  EXPECT_TRUE(without.buffers.empty());
  EXPECT_NE(one.imbalance, without.imbalance);
  for (const LayoutCase& layout :
       {LayoutCase{"Data", 2, {"train.micro_batch=2", "strategy.recompute=full"}},
        LayoutCase{"Stages", 3, {"mesh.pp=3", "strategy.recompute=sqrt"}},
        LayoutCase{"ExpertsOfRanks", 4, {"mesh.ep=2", "strategy.recompute=every:2", "strategy.zero=1"}},
        LayoutCase{"Hybrid", 4, {"strategy.zero=3", "mesh.fsdp=2", "train.micro_batch=3"}}}) {
    const Trained many = train_in_threads(with(run, layout.overrides), layout.ranks, kSteps);
    EXPECT_EQ(many.imbalance, one.imbalance) << layout.name;
    EXPECT_EQ(many.expert_load, one.expert_load) << layout.name;  // recomputed passes do not count
    EXPECT_LE(worst_difference(many.losses, one.losses), 2e-6) << layout.name;
    for (const auto& [name, bias] : one.buffers)
      EXPECT_TRUE(at::equal(many.buffers.at(name), bias)) << layout.name << " " << name;
  }
}

// Which choices are dropped follows from each sequence alone.
TEST(ExpertsTraining, DropsTheSameChoicesInAnyLayout) {
  const spec::RunFile run = with(moe_run(), {"model.capacity_factor=0.8", "model.experts=6"});
  const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kSteps);
  EXPECT_GT(one.dropped.back(), 50);
  for (const LayoutCase& layout :
       {LayoutCase{"Data", 2, {"train.micro_batch=2", "strategy.recompute=full"}},
        LayoutCase{"ExpertsOfRanks", 4, {"mesh.ep=2", "strategy.recompute=every:2", "strategy.zero=1"}},
        LayoutCase{"Stages", 4, {"mesh.pp=2", "mesh.ep=2", "strategy.pipeline=zero_bubble_h1"}}}) {
    const Trained many = train_in_threads(with(run, layout.overrides), layout.ranks, kSteps);
    EXPECT_EQ(many.dropped, one.dropped) << layout.name;
    EXPECT_LE(worst_difference(many.losses, one.losses), 2e-6) << layout.name;
    EXPECT_LE(worst_difference(many.norms, one.norms), 1e-4) << layout.name;
  }
}

// Tensor ranks share attention and cut rows before the router, whose losses would be of whole sequences.
TEST(ExpertsTraining, RanksThatShareAttentionTrainAsOneRankDoes) {
  constexpr int kFewSteps = 8;
  for (const char* shared : {"model.shared_experts=0", "model.shared_experts=1"}) {
    const spec::RunFile run = with(moe_run(), {"model.balance_loss=0", "model.z_loss=0", "model.bias_balancing=0.001",
                                               "model.experts=6", "model.context=7", shared});
    const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kFewSteps);
    int index = 0;
    for (const LayoutCase& layout :
         {LayoutCase{"Two", 2, {"mesh.tp=2"}},
          LayoutCase{"DataZero3", 4, {"mesh.tp=2", "strategy.zero=3", "strategy.keep_gathered=false"}},
          LayoutCase{"ExpertsOfRanks", 4, {"mesh.tp=2", "mesh.ep=2", "train.micro_batch=3"}},
          LayoutCase{"ExpertsOfRanksZero3", 8, {"mesh.tp=2", "mesh.ep=2", "strategy.zero=3"}},
          LayoutCase{"Stages", 4, {"mesh.tp=2", "mesh.pp=2", "strategy.recompute=full"}},
          LayoutCase{"ZeroBubble", 8, {"mesh.tp=2", "mesh.ep=2", "mesh.pp=2", "strategy.pipeline=zero_bubble_h1"}}}) {
      if (++index % one_in(3, 6) != (run.model.shared_experts == 0 && one_in(3, 6) > 1 ? 1 : 0)) continue;
      const Trained many = train_in_threads(with(run, layout.overrides), layout.ranks, kFewSteps);
      expect_trained_as(many, one, layout.name);
      EXPECT_EQ(many.expert_load, one.expert_load) << layout.name;
      for (const auto& [name, bias] : one.buffers)
        EXPECT_TRUE(at::equal(many.buffers.at(name), bias)) << layout.name << " " << name;
    }
  }
}

// Context ranks have tokens of their own, with padding behind the last one, and send them to their experts.
TEST(ExpertsTraining, RanksThatShareTokensTrainAsOneRankDoes) {
  constexpr int kFewSteps = 8;
  const spec::RunFile run = with(moe_run(), {"model.balance_loss=0", "model.z_loss=0", "model.bias_balancing=0.001",
                                             "model.experts=6", "model.context=7", "model.shared_experts=1"});
  const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kFewSteps);
  int index = 0;
  for (const LayoutCase& layout :
       {LayoutCase{"RingOfExperts", 2, {"mesh.cp=2", "mesh.ep=2", "strategy.context=ring"}},
        LayoutCase{"Ring", 4, {"mesh.cp=2", "strategy.context=ring"}},
        LayoutCase{"RingOfThree", 3, {"mesh.cp=3", "mesh.ep=3", "strategy.context=ring"}},
        LayoutCase{"Zero3", 4, {"mesh.cp=2", "mesh.ep=2", "strategy.zero=3", "strategy.recompute=full"}},
        LayoutCase{"Exchange", 4, {"mesh.cp=2", "mesh.ep=2", "train.micro_batch=3"}},
        LayoutCase{"Stages", 4, {"mesh.cp=2", "mesh.ep=2", "mesh.pp=2", "strategy.recompute=every:2"}},
        LayoutCase{"ZeroBubble",
                   8,
                   {"mesh.cp=2", "mesh.ep=2", "mesh.tp=2", "mesh.pp=2", "strategy.context=ring",
                    "strategy.pipeline=zero_bubble_h1"}}}) {
    if (++index % one_in(3, 6) != 1 % one_in(3, 6)) continue;
    const Trained many = train_in_threads(with(run, layout.overrides), layout.ranks, kFewSteps);
    expect_trained_as(many, one, layout.name);
    EXPECT_EQ(many.expert_load, one.expert_load) << layout.name;
  }
}

// What Qwen and DeepSeek have beside Mixtral: biases and norms of queries and keys, shared experts with a gate, and a
// dense first layer. Of the norms, tensor ranks have gradients of their own heads.
TEST(ExpertsTraining, WithNormsOfHeadsGatesAndDenseLayersIsAsOnOneRank) {
  constexpr int kFewSteps = 6;
  const spec::RunFile run =
      with(moe_run(), {"model.heads=4", "model.kv_heads=2", "model.head_width=6", "model.qkv_bias=true",
                       "model.qk_norm=true", "model.shared_experts=2", "model.shared_gate=true", "model.dense_layers=1",
                       "model.experts=6", "model.balance_loss=0", "model.z_loss=0"});
  const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kFewSteps);
  int index = 0;
  for (const LayoutCase& layout :
       {LayoutCase{"Tensor", 4, {"mesh.tp=4", "strategy.zero=0"}},
        LayoutCase{"TensorZero", 4, {"mesh.tp=2", "strategy.zero=3", "strategy.keep_gathered=false"}},
        LayoutCase{"Experts", 4, {"mesh.ep=2", "strategy.zero=1", "strategy.recompute=full"}},
        LayoutCase{"Stages", 3, {"mesh.pp=3", "strategy.pipeline=zero_bubble_h1"}},
        LayoutCase{"Ring", 2, {"mesh.cp=2", "strategy.context=ring", "mesh.ep=2"}},
        LayoutCase{"Heads", 4, {"mesh.cp=2", "mesh.tp=2"}}}) {
    if (index++ % one_in(4, 4) != 0) continue;
    const Trained many = train_in_threads(with(run, layout.overrides), layout.ranks, kFewSteps);
    expect_trained_as(many, one, layout.name);
  }
  // The losses of routers begin in the first layer with experts.
  const spec::RunFile losing = with(run, {"model.balance_loss=0.05"});
  const Trained alone = train_in_threads(with(losing, {"train.micro_batch=12"}), 1, 2);
  EXPECT_NEAR(alone.losses[0] - one.losses[0], 2 * 0.05, 0.01);
  EXPECT_LE(worst_difference(train_in_threads(with(losing, {"mesh.pp=2"}), 2, 2).losses, alone.losses), 2e-6);
}

// Context and tensor ranks tell each other their choices: a router's losses and a capacity are those of whole
// sequences, of which they have parts. Seven tokens leave one of padding.
TEST(ExpertsTraining, RanksThatShareTokensHaveRoutersOfWholeSequences) {
  constexpr int kFewSteps = 8;
  for (const char* capacity : {"model.capacity_factor=0.8", "model.capacity_factor=0"}) {
    const spec::RunFile run = with(
        moe_run(), {"model.context=7", "model.experts=4", "model.balance_loss=0.3", "model.z_loss=0.05", capacity});
    const Trained one = train_in_threads(with(run, {"train.micro_batch=12"}), 1, kFewSteps);
    int index = run.model.capacity_factor > 0 ? 0 : 1;
    for (const LayoutCase& layout :
         {LayoutCase{"Ring", 2, {"mesh.cp=2", "strategy.context=ring"}},
          LayoutCase{"RecomputedZero3", 4, {"mesh.cp=2", "strategy.zero=3", "strategy.recompute=full"}},
          LayoutCase{"RingOfThree", 3, {"mesh.cp=3", "strategy.context=ring", "train.micro_batch=3"}},
          LayoutCase{"ExpertsOfRows", 4, {"mesh.tp=2", "mesh.ep=2", "strategy.zero=3", "strategy.recompute=full"}},
          LayoutCase{"ExpertsOfRing", 2, {"mesh.cp=2", "mesh.ep=2", "strategy.context=ring"}},
          LayoutCase{"Rows", 2, {"mesh.tp=2"}},
          LayoutCase{"ExpertsOfHeads", 4, {"mesh.cp=2", "mesh.ep=4", "strategy.recompute=full"}},
          LayoutCase{"ExpertsOfStages", 8, {"mesh.tp=2", "mesh.ep=2", "mesh.pp=2", "strategy.recompute=every:2"}},
          LayoutCase{"RowsOfRing", 4, {"mesh.tp=2", "mesh.cp=2", "mesh.ep=2", "strategy.context=ring"}},
          LayoutCase{"RowsZero3", 4, {"mesh.tp=2", "strategy.zero=3", "strategy.recompute=full"}},
          LayoutCase{"RowsOfStages", 4, {"mesh.tp=2", "mesh.pp=2", "strategy.pipeline=zero_bubble_h1"}},
          LayoutCase{"RowsOfRingZero2",
                     4,
                     {"mesh.tp=2", "mesh.cp=2", "strategy.context=ring", "strategy.zero=2", "strategy.recompute=full"}},
          LayoutCase{"RowsByTurns", 2, {"mesh.tp=2", "strategy.interleave_micro_batches=2", "train.micro_batch=3"}},
          LayoutCase{"Stages", 4, {"mesh.cp=2", "mesh.pp=2", "strategy.recompute=every:2"}},
          LayoutCase{
              "RowsOfRingOfStages",
              8,
              {"mesh.tp=2", "mesh.cp=2", "mesh.pp=2", "strategy.context=ring", "strategy.pipeline=zero_bubble_h1"}},
          LayoutCase{"RingOfStages",
                     4,
                     {"mesh.cp=2", "mesh.pp=2", "strategy.context=ring", "strategy.pipeline=zero_bubble_h1"}}}) {
      if (index++ % one_in(4, 4) != 0) continue;
      const Trained many = train_in_threads(with(run, layout.overrides), layout.ranks, kFewSteps);
      expect_trained_as(many, one, layout.name);
      EXPECT_EQ(many.dropped, one.dropped) << layout.name;
    }
  }
}

TEST(ExpertsTraining, RefusesTensorRanksThatHaveAllRows) {
  EXPECT_ERROR(train_in_threads(with(moe_run(), {"mesh.tp=2", "strategy.sequence_parallel=false"}), 2, 1),
               Code::kBadConfig, "mesh.tp = 2", "fix: strategy.sequence_parallel = true");
}

}  // namespace
}  // namespace herd::train
