// Models drawn by chance train as one rank without techniques trains them, whatever ZeRO stage, recompute, precision,
// ranks and micro-batches; also with shards over two axes, cut into the stages of a pipeline, and on meshes drawn by
// chance. A combination's model follows from its seed, which a failure names together with what was drawn.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "herd/strategies/table.h"
#include "tests/support/sample.h"
#include "train_in_threads.h"

namespace herd::train {
namespace {

constexpr int kRandomSteps = 20;

struct Combination {
  int zero = 0;
  std::string recompute, precision;
  int ranks = 1;
  int64_t micro_batches = 1;
  int64_t fsdp = 1;
  uint64_t seed = 0;
  int pp = 1;
  std::string order = "1f1b";
  int tp = 1;
  bool sequence = true;
  std::string offload = "none";
  std::string kind = "gpt";
  int stages_per_rank = 1;
  bool dropout = true;
  double lr = 1e-3, norms = 1e-4;  // how far 32-bit norms may be apart
  int data_ranks() const { return ranks / pp / tp; }
};

// Half of the time heads share key heads: as many as ranks, or fewer, of which these hold copies.
template <class In>
void draw_kind(const std::string& kind, spec::RunFile::Model& model, int64_t tp, const In& in) {
  if (in(0, 1) == 1) {
    do model.kv_heads = in(1, tp);
    while (tp % model.kv_heads != 0);
  }
  if (kind == "gpt") return;
  model.kind = "llama";
  model.norm = "rmsnorm";
  model.norm_eps = 1e-6;
  model.head_width += model.head_width % 2;
  model.rope_theta = 30;
  model.rope_scaling = in(0, 1) == 1 ? "llama3" : "none";
  model.rope_factor = 4;
  model.rope_original_context = 16;
}

// Width up to 64, of heads of any width; up to 5 layers; sizes mostly odd; dropout always on; a batch that the ranks
// share unevenly more often than not, and which makes as many micro-batches as asked for.
spec::RunFile drawn(const Combination& c) {
  std::mt19937_64 random(c.seed);
  const auto in = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  spec::RunFile run = tiny_run();
  run.model.layers = in(1, 5);
  if (c.stages_per_rank > 1) run.model.layers = c.pp * c.stages_per_rank + in(0, 2) - 2;  // the ends are stages too
  run.model.heads = c.tp == 1 ? in(1, 6) : c.tp * in(1, 2);
  run.model.head_width = in(3, 64 / run.model.heads);
  run.model.width = run.model.heads * run.model.head_width;
  run.model.kv_heads = run.model.heads;
  run.model.ffn = in(run.model.width, 4 * run.model.width) / c.tp * c.tp;
  run.model.context = in(3, 17);
  run.model.vocab = in(17, 101);
  run.model.dropout = 0.05 * static_cast<double>(in(1, 4));
  run.model.tie_embeddings = in(0, 1) == 1;
  run.train.seed = in(1, 1000);
  run.train.micro_batch = in(1, 2);
  const int64_t most = c.micro_batches * run.train.micro_batch;  // samples of a rank
  const int64_t least = (c.micro_batches - 1) * run.train.micro_batch + 1;
  run.train.batch = in((least - 1) * c.data_ranks() + 1, most * c.data_ranks());
  run.strategy.zero = c.zero;
  run.strategy.recompute = c.recompute;
  run.strategy.precision = c.precision;
  if (c.precision != "fp32" && in(0, 1) == 1) run.strategy.gradient_precision = "fp32";
  run.strategy.bucket = in(0, 1) == 1 ? 4096 : 25 << 20;
  run.strategy.prefetch = in(0, 2);
  run.strategy.keep_whole = in(0, 2);
  run.mesh.fsdp = c.fsdp;
  run.mesh.pp = std::min<int64_t>(c.pp, run.model.layers + 2);
  run.strategy.pipeline = c.order;
  if (c.stages_per_rank > 1) run.strategy.stages_per_rank = c.stages_per_rank;
  run.mesh.tp = c.tp;
  run.strategy.offload = c.offload;
  run.strategy.sequence_parallel = c.sequence;
  run.strategy.keep_gathered = c.seed % 2 == 0;
  if (!c.dropout) run.model.dropout = 0;
  run.optimizer.lr = c.lr;
  if (c.tp > 1 && in(0, 2) == 0) run.model.norm = "rmsnorm";
  draw_kind(c.kind, run.model, c.tp, in);
  if (c.tp > 1 && c.pp == 1 && c.seed % 3 == 1)
    run.strategy.interleave_micro_batches = static_cast<int64_t>(2 + (c.seed / 3) % 2);
  if (c.seed % 5 == 0) run.optimizer.clip = 0, run.health.check_finite = false;  // then no rank waits for a norm
  return run;
}

std::string text(const Combination& c, const spec::RunFile& run) {
  const auto& m = run.model;
  return "seed " + std::to_string(c.seed) + ": zero " + std::to_string(c.zero) + ", recompute " + c.recompute + ", " +
         c.precision + " (gradients " + run.strategy.gradient_precision + "), " + std::to_string(c.ranks) +
         " ranks, fsdp " + std::to_string(c.fsdp) + ", pp " + std::to_string(run.mesh.pp) + " " + c.order + " " +
         std::to_string(c.stages_per_rank) + ", tp " + std::to_string(c.tp) + (c.sequence ? " rows, " : ", ") +
         (run.strategy.keep_gathered ? "" : "gathered again, ") + "interleave " +
         std::to_string(run.strategy.interleave_micro_batches) + ", offload " + c.offload + ", " +
         std::to_string(c.micro_batches) + " micro-batches | " + m.kind + ", layers " + std::to_string(m.layers) +
         ", width " + std::to_string(m.width) + ", heads " + std::to_string(m.heads) + " of " +
         std::to_string(m.head_width) + ", key heads " + std::to_string(m.kv_heads) + ", ffn " + std::to_string(m.ffn) +
         ", context " + std::to_string(m.context) + ", vocab " + std::to_string(m.vocab) + ", dropout " +
         std::to_string(m.dropout) + (m.tie_embeddings ? ", tied" : ", untied") + ", batch " +
         std::to_string(run.train.batch);
}

double eps_of(const std::string& precision) { return precision == "bf16" ? 0x1p-8 : 0x1p-11; }

// 32-bit sums in another order differ by a few 2^-24 of the loss.
// Of 16-bit weights, gradients and activations each is rounded by eps/2 at most, to either side: eps = 2^-8 (bf16) or
// 2^-11 (fp16). Where two runs sum in another order they may round one number to its two neighbours, eps apart; a mean
// over tokens evens that out. A gradient that is eps off moves a weight by as much of the step, so that what the steps
// gain, which is less than the loss, is eps of itself off. So losses are less than eps apart.
double tolerance(const std::string& precision) { return precision == "fp32" ? 1e-6 : eps_of(precision); }

double expect_trains_as_one_rank(const Combination& c) {
  const spec::RunFile run = drawn(c);
  spec::RunFile plain = run;
  plain.mesh = {};
  plain.strategy = {};
  plain.strategy.precision = run.strategy.precision;
  plain.strategy.gradient_precision = run.strategy.gradient_precision;
  // In 32 bits one rank takes the batch whole. Sums of 16 bits over micro-batches round at each of them, and overflow
  // or not: there it has as many.
  const int64_t parts = c.precision == "fp32" ? 1 : c.micro_batches;
  plain.train.micro_batch = (plain.train.batch + parts - 1) / parts;
  const Trained many = train_in_threads(run, c.ranks, kRandomSteps), one = train_in_threads(plain, 1, kRandomSteps);
  EXPECT_EQ(spec::resolve(run, c.ranks).micro_batches, c.micro_batches) << text(c, run);
  EXPECT_EQ(std::vector<int64_t>(many.skipped.size(), many.skipped[0]), many.skipped) << text(c, run);
  EXPECT_EQ(many.losses.size(), static_cast<size_t>(kRandomSteps));
  double worst = std::abs(many.validation - one.validation) / one.validation;
  for (size_t i = 0; i < one.losses.size(); ++i)
    worst = std::max(worst, std::abs(many.losses[i] - one.losses[i]) / std::abs(one.losses[i]));
  // Near the largest number of fp16, sums in another order overflow in another step, where ranks share samples or a
  // tied embedding: what follows is an update behind or ahead, and its moments with it; two updates are allowed.
  double allowed = tolerance(c.precision);
  for (size_t i = 1; i < one.losses.size() && (one.skipped[0] > 0 || many.skipped[0] > 0); ++i)
    allowed = std::max(allowed, 2 * std::abs(one.losses[i] - one.losses[i - 1]) / std::abs(one.losses[i]));
  EXPECT_LT(worst, allowed) << text(c, run);
  if (c.precision == "fp32") {
    for (size_t i = 0; i < one.norms.size() && strategies::needs_norm(run); ++i)
      EXPECT_NEAR(many.norms[i], one.norms[i], c.norms * one.norms[i]) << text(c, run);
  }
  return worst;
}

// All of a stage and precision with HERD_FULL_TESTS, else one in `stride`, which shares no factor with the lengths of
// the loops that draw them, so that the sample has all of their values. The kind of the model changes with the seed,
// and every `period` seeds the other way round.
class RandomModels : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  template <class Draws>
  void check(const Draws& combinations, uint64_t stride, uint64_t period) {
    double worst = 0;
    int count = 0;
    for (Combination c : combinations) {
      if (std::getenv("HERD_FULL_TESTS") == nullptr && c.seed % stride != 0) continue;
      if ((c.seed / period + c.seed % period) % 2 == 1) c.kind = "llama";
      worst = std::max(worst, expect_trains_as_one_rank(c));
      ++count;
    }
    EXPECT_GT(count, 0);
    RecordProperty("combinations", count);
    RecordProperty("worst", std::to_string(worst * 1e9) + "e-9");
  }
};

TEST_P(RandomModels, TrainAsOneRankDoes) {
  const auto [precision, zero] = GetParam();
  std::vector<Combination> all;
  uint64_t seed = static_cast<uint64_t>(40 * zero + (precision[0] == 'b' ? 160 : precision[2] == '1' ? 320 : 0));
  for (const char* recompute : {"none", "full", "selective", "sqrt", "every:2"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t micro_batches : {1, 3})
        all.push_back({zero, recompute, precision, ranks, micro_batches, 1, ++seed});
    }
  }
  check(all, 31, 23);
}

TEST_P(RandomModels, TrainAsOneRankDoes_WithShardsTwoByTwo) {
  const auto [precision, zero] = GetParam();
  std::vector<Combination> all;
  uint64_t seed = static_cast<uint64_t>(1000 + 8 * zero + (precision[0] == 'b' ? 32 : precision[2] == '1' ? 64 : 0));
  for (const char* recompute : {"none", "full", "selective", "sqrt"}) {
    for (const int64_t micro_batches : {1, 3}) all.push_back({zero, recompute, precision, 4, micro_batches, 2, ++seed});
  }
  check(all, 7, 8);
}

// A layer at least is left for each stage between the first and the last.
TEST_P(RandomModels, TrainAsOneRankDoes_InStagesOfAPipeline) {
  const auto [precision, zero] = GetParam();
  std::vector<Combination> all;
  uint64_t seed = static_cast<uint64_t>(2000 + 24 * zero + (precision[0] == 'b' ? 96 : precision[2] == '1' ? 192 : 0));
  for (const auto& [pp, dp, fsdp] : {std::tuple(2, 1, 1), {3, 1, 1}, {2, 2, 1}, {3, 2, 1}, {2, 4, 2}, {2, 2, 2}}) {
    for (const bool splits : {false, true}) {
      for (const int64_t micro_batches : {1, 4}) {
        const char* order = splits ? "zero_bubble_h1" : seed % 2 == 0 ? "1f1b" : "gpipe";
        const char* recompute = seed % 3 == 0 ? "full" : seed % 3 == 1 ? "none" : "every:2";
        all.push_back({zero, recompute, precision, pp * dp, micro_batches, fsdp, ++seed, pp, order});
      }
    }
  }
  check(all, 19, 12);
}

// Stages that lie on ranks by turns, and there and back; fewer micro-batches than ranks, and more.
TEST_P(RandomModels, TrainAsOneRankDoes_InSeveralStagesOfEachRank) {
  const auto [precision, zero] = GetParam();
  std::vector<Combination> all;
  uint64_t seed = static_cast<uint64_t>(5000 + 24 * zero + (precision[0] == 'b' ? 96 : precision[2] == '1' ? 192 : 0));
  for (const auto& [tp, pp, dp, fsdp] :
       {std::tuple(1, 2, 1, 1), {1, 3, 1, 1}, {1, 4, 2, 1}, {2, 2, 2, 1}, {1, 2, 4, 2}, {1, 4, 1, 1}}) {
    for (const auto& [order, stages] : {std::pair("zero_bubble_v", 2), {"interleaved", 2}, {"interleaved", 3}}) {
      const int64_t micro_batches = 1 + static_cast<int64_t>(seed * 7 % 9);
      const char* recompute = seed % 4 == 0 ? "full" : seed % 4 == 1 ? "none" : seed % 4 == 2 ? "selective" : "every:2";
      all.push_back({zero, recompute, precision, tp * pp * dp, micro_batches, fsdp, ++seed, pp, order, tp, true, "none",
                     seed % 2 == 0 ? "gpt" : "llama", stages});
    }
  }
  if (std::getenv("HERD_FULL_TESTS") == nullptr) {  // one of up to four ranks, another for each stage and precision
    std::erase_if(all, [](const Combination& c) { return c.ranks > 4; });
    all = {all[static_cast<size_t>(4 * (precision == "fp32" ? 0 : precision == "bf16" ? 1 : 2) + zero) % all.size()]};
  }
  check(all, 1, 6);
}

// Meshes of up to eight ranks, each drawn with everything else.
constexpr uint64_t kMeshes = 200;

Combination mesh_drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all = {values...};
    return all[random() % all.size()];
  };
  Combination c;
  c.seed = seed;
  int64_t dp = 1;
  do c.tp = one_of(1, 2, 3, 4, 8), c.fsdp = one_of(1, 2, 3, 4), dp = one_of(1, 2, 3, 4);
  while (c.tp * c.fsdp * dp > 8 || c.tp * c.fsdp * dp == 1);
  c.ranks = static_cast<int>(c.tp * c.fsdp * dp);
  c.zero = c.fsdp * dp > 1 ? one_of(0, 1, 2, 3) : 0;
  c.recompute = one_of("none", "full", "selective", "sqrt", "every:2");
  c.precision = one_of("fp32", "fp32", "bf16", "fp16");
  c.micro_batches = one_of(1, 2, 3, 4);
  c.sequence = one_of(true, true, false);
  c.kind = one_of("gpt", "llama");
  c.dropout = one_of(true, false);
  c.lr = 3e-4, c.norms = 1e-5;
  return c;
}

TEST(RandomMeshes, TrainAsOneRankDoes) {
  std::map<std::string, double> worst;
  std::map<std::string, int> count;
  const uint64_t stride = one_in(11, 41);
  for (uint64_t seed = 6001; seed <= 6000 + kMeshes; ++seed) {
    if (seed % stride != 0) continue;
    const Combination c = mesh_drawn(seed);
    worst[c.precision] = std::max(worst[c.precision], expect_trains_as_one_rank(c));
    ++count[c.precision];
  }
  for (const auto& [precision, meshes] : count) {
    EXPECT_GT(meshes, 0);
    RecordProperty(precision + " meshes", meshes);
    RecordProperty(precision + " worst", std::to_string(worst[precision] * 1e9) + "e-9");
    std::printf("%d meshes in %s, losses %.2g apart at most\n", meshes, precision.c_str(), worst[precision]);
  }
}

// Rows that ranks share unevenly, vocabularies that they do not share alike, more stages and shards beside them.
TEST_P(RandomModels, TrainAsOneRankDoes_WithLayersThatRanksShare) {
  const auto [precision, zero] = GetParam();
  std::vector<Combination> all;
  uint64_t seed = static_cast<uint64_t>(3000 + 24 * zero + (precision[0] == 'b' ? 96 : precision[2] == '1' ? 192 : 0));
  for (const auto& [tp, pp, dp, fsdp] :
       {std::tuple(2, 1, 1, 1), {3, 1, 1, 1}, {2, 1, 2, 1}, {2, 2, 1, 1}, {2, 2, 2, 1}, {2, 1, 4, 2}}) {
    for (const bool sequence : {true, false}) {
      for (const int64_t micro_batches : {1, 3}) {
        const char* recompute = seed % 4 == 0   ? "full"
                                : seed % 4 == 1 ? "none"
                                : seed % 4 == 2 ? "selective"
                                                : "every:2";
        all.push_back({zero, recompute, precision, tp * pp * dp, micro_batches, fsdp, ++seed, pp,
                       seed % 3 == 0 ? "zero_bubble_h1" : "1f1b", tp, sequence});
      }
    }
  }
  check(all, 19, 12);
}

TEST_P(RandomModels, TrainAsOneRankDoes_WithStatesOnTheHost) {
  const auto [precision, zero] = GetParam();
  std::vector<Combination> all;
  uint64_t seed = static_cast<uint64_t>(4000 + 12 * zero + (precision[0] == 'b' ? 48 : precision[2] == '1' ? 96 : 0));
  for (const auto& [tp, pp, dp, fsdp] :
       {std::tuple(1, 1, 1, 1), {1, 1, 2, 1}, {1, 1, 3, 1}, {1, 1, 4, 2}, {2, 2, 2, 1}, {1, 2, 2, 1}}) {
    for (const int64_t micro_batches : {1, 3}) {
      const char* recompute = seed % 2 == 0 ? "full" : "none";
      all.push_back(
          {zero, recompute, precision, tp * pp * dp, micro_batches, fsdp, ++seed, pp, "1f1b", tp, true, "states"});
    }
  }
  check(all, 11, 6);
}

INSTANTIATE_TEST_SUITE_P(Strategies, RandomModels,
                         testing::Combine(testing::Values(std::string("fp32"), "bf16", "fp16"),
                                          testing::Values(0, 1, 2, 3)),
                         [](const auto& drawn_from) {
                           return std::get<0>(drawn_from.param) + "_zero" +
                                  std::to_string(std::get<1>(drawn_from.param));
                         });

}  // namespace
}  // namespace herd::train
