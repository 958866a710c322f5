// Meshes of up to eight ranks, each drawn with everything else, train as one rank: a slice of them, and all with
// HERD_FULL_TESTS=1. A failure names the seed and what was drawn. Meshes that begin with weights of any format have the
// first loss of one rank.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>

#include "random_run.h"
#include "tests/support/sample.h"

namespace herd::train {
namespace {

constexpr uint64_t kMeshes = 200;
constexpr int kMeshesOfExperts = 60;

Combination mesh_drawn(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all = {values...};
    return all[random() % all.size()];
  };
  Combination c;
  c.seed = seed;
  int64_t dp = 1;
  do {
    c.tp = one_of(1, 2, 3, 4, 8), c.fsdp = one_of(1, 2, 3, 4), dp = one_of(1, 2, 3, 4);
    c.cp = c.tp == 1 ? one_of(1, 2, 2, 3, 4, 8) : 1;
  } while (c.tp * c.cp * c.fsdp * dp > 8 || c.tp * c.cp * c.fsdp * dp == 1);
  c.ranks = static_cast<int>(c.tp * c.cp * c.fsdp * dp);
  c.zero = c.cp * c.fsdp * dp > 1 ? one_of(0, 1, 2, 3) : 0;
  c.recompute = one_of("none", "full", "selective", "sqrt", "every:2");
  c.precision = one_of("fp32", "fp32", "bf16", "fp16");
  c.micro_batches = one_of(1, 2, 3, 4);
  c.sequence = one_of(true, true, false);
  c.kind = one_of("gpt", "llama");
  c.dropout = one_of(true, false);
  c.lr = 3e-4, c.norms = 1e-5;
  c.offload = seed % 4 == 2 ? "states" : seed % 4 == 3 ? "nvme" : "none";
  if ((c.tp == 1 || c.ranks > 4) && seed % 5 == 0) c.kind = "moe";
  if (seed % 4 == 1) c.offload = "window";
  c.context = one_of("ring", "all_to_all");         // drawn late, so that the rest is as it was
  if (c.tp > 1 && c.ranks <= 4 && seed % 2 == 0) {  // ranks that share heads and tokens
    c.cp = c.tp == 2 && c.ranks == 2 ? one_of(2, 3, 4) : 2;
    c.ranks *= c.cp;
    c.zero = one_of(0, 1, 2, 3);
  }
  if (seed % 8 == 4) {  // experts that several ranks hold
    c.kind = "moe", c.cp = 1;
    c.offload = one_of("none", "states", "nvme", "window");
    c.ranks = one_of(2, 3, 4, 6, 8);
    if (c.ranks % c.fsdp != 0) c.fsdp = 1;
    c.ep = c.ranks % 2 == 0 ? one_of(2, c.ranks) : c.ranks;
    c.tp = c.ranks <= 4 ? one_of(1, 2) : 1;
    if (c.tp == 1 && c.ranks <= 4 && seed % 16 == 4) {  // that share tokens, too
      c.cp = 2, c.ranks *= 2;
      c.ep = one_of(2, c.ranks);
    }
    c.ranks *= c.tp;
  }
  if (c.ranks <= 4) {  // stages of a pipeline, where there are ranks for them
    c.pp = c.ranks <= 2 ? one_of(1, 2, 3) : one_of(1, 2);
    c.ranks *= c.pp;
    if (c.pp > 1) c.order = one_of("1f1b", "gpipe", "zero_bubble_h1");
  }
  return c;
}

TEST(RandomMeshes, TrainAsOneRankDoes) {
  std::map<std::string, double> worst;
  std::map<std::string, int> count;
  int with_stages = 0;
  const uint64_t stride = one_in(17, 41);
  for (uint64_t seed = 6001; seed <= 6000 + kMeshes; ++seed) {
    if (seed % stride != 0) continue;
    const Combination c = mesh_drawn(seed);
    const std::string numbers = c.precision + (loses_in_int8(drawn(c)) ? " with terms in int8" : "");
    worst[numbers] = std::max(worst[numbers], expect_trains_as_one_rank(c));
    ++count[numbers];
    if (c.pp > 1) ++with_stages;
  }
  EXPECT_GT(with_stages, 0);
  for (const auto& [numbers, meshes] : count) {
    EXPECT_GT(meshes, 0);
    RecordProperty(numbers + " meshes", meshes);
    RecordProperty(numbers + " worst", std::to_string(worst[numbers] * 1e9) + "e-9");
    std::printf("%d meshes in %s, losses %.2g apart at most\n", meshes, numbers.c_str(), worst[numbers]);
  }
}

// Experts that two ranks or all of them share, with attention, tokens or stages that ranks share.
TEST(RandomMeshes, RanksThatShareExpertsTrainAsOneRankDoes) {
  std::map<int64_t, int> count;  // of meshes, by mesh.ep
  double worst = 0;
  const int stride = one_in(20, 30);
  for (int i = 1; i <= kMeshesOfExperts; i += stride) {
    const Combination c = mesh_drawn(7004 + 8 * static_cast<uint64_t>(i));
    worst = std::max(worst, expect_trains_as_one_rank(c));
    ++count[c.ep];
  }
  EXPECT_EQ(count.count(1), 0);
  for (const auto& [ep, meshes] : count)
    std::printf("%d meshes of mesh.ep = %d, losses %.2g apart at most\n", meshes, static_cast<int>(ep), worst);
}

// What each sequence hides is the same in every layout, and as many tokens of each count.
TEST(RandomMeshes, OfBertTrainAsOneRankDoes) {
  double worst = 0;
  const uint64_t stride = one_in(3, 23);
  for (uint64_t seed = 9101; seed <= 9240; seed += stride) {
    Combination c = mesh_drawn(seed);
    c.ranks /= c.tp * c.cp;
    c.kind = "bert", c.tp = c.cp = c.ep = 1;
    if (c.data_ranks() == 1) c.zero = 0;
    if (c.data_ranks() % c.fsdp != 0) c.fsdp = 1;
    const double apart = expect_trains_as_one_rank(c);
    if (c.precision == "fp32" && !loses_in_int8(drawn(c))) worst = std::max(worst, apart);
  }
  std::printf("meshes of bert in fp32, losses %.2g apart at most\n", worst);
}

// Every number of ranks that share tokens, whatever heads there are; beside data ranks and stages where they fit.
TEST(RandomMeshes, RingsOfEveryLengthTrainAsOneRankDoes) {
  for (int cp = 2; cp <= 8; ++cp) {
    if ((cp + 2) % static_cast<int>(one_in(7, 7)) != 0) continue;
    Combination c = mesh_drawn(8000 + static_cast<uint64_t>(cp));
    c.tp = 1, c.cp = cp, c.ep = 1, c.context = "ring";
    c.fsdp = cp == 3 ? 2 : 1, c.pp = cp == 2 || cp == 4 ? 2 : 1, c.order = "1f1b";
    c.ranks = static_cast<int>(c.cp * c.fsdp * c.pp) * (cp == 2 ? 2 : 1);
    c.zero = cp % 4, c.offload = "none", c.precision = cp == 7 ? "bf16" : "fp32";
    c.recompute = cp % 2 == 0 ? "full" : "none";
    if (c.kind == "moe") c.kind = "llama";
    const double worst = expect_trains_as_one_rank(c);
    std::printf("a ring of %d of %d ranks in %s, losses %.2g apart at most\n", cp, c.ranks, c.precision.c_str(), worst);
  }
}

// Heads cut by one axis and then by another, or heads by one and tokens by the other; with stages where they fit.
TEST(RandomMeshes, HeadsAndTokensOfRanksTrainAsOneRankDoes) {
  uint64_t index = 0;
  for (const int tp : {2, 3, 4}) {
    for (const int cp : {2, 3, 4}) {
      for (const char* context : {"ring", "all_to_all"}) {
        for (const int pp : {1, 2}) {
          if (tp * cp * pp > 8 || index++ % one_in(5, 7) != 0) continue;
          Combination c = mesh_drawn(9000 + index);
          c.tp = tp, c.cp = cp, c.pp = pp, c.context = context;
          c.fsdp = 1, c.ep = 1, c.ranks = tp * cp * pp;
          c.zero = static_cast<int>(index % 4), c.offload = "none", c.dropout = true;
          c.order = pp > 1 && index % 3 == 0 ? "zero_bubble_h1" : "1f1b";
          if (c.kind == "moe") c.kind = "llama";
          const double worst = expect_trains_as_one_rank(c);
          std::printf("tp %d, cp %d in %s, pp %d in %s, losses %.2g apart at most\n", tp, cp, context, pp,
                      c.precision.c_str(), worst);
        }
      }
    }
  }
}

// Positions restart where documents begin, and no token sees another document, whoever has the heads and the tokens.
TEST(RandomMeshes, PackedDocumentsOfHeadsAndTokensTrainAsOneRankDoes) {
  uint64_t index = 0;
  for (const char* kind : {"gpt", "llama", "moe"}) {
    for (const char* context : {"ring", "all_to_all"}) {
      Combination c = mesh_drawn(9602 + 3 * index++);  // a seed that packs
      c.kind = kind, c.context = context, c.precision = "fp32";
      c.tp = 2, c.cp = 2, c.pp = 1, c.ranks = 4, c.fsdp = 1, c.ep = 1;
      if (c.kind == "moe") c.cp = 1, c.ep = 2;
      c.zero = static_cast<int>(index % 4), c.offload = "none", c.dropout = index % 2 == 0;
      ASSERT_TRUE(drawn(c).data.packs_documents());
      std::printf("documents of %s in %s, losses %.2g apart at most\n", kind, context, expect_trains_as_one_rank(c));
    }
  }
}

// Optimizer states in host memory and in files, too.
TEST(RandomMeshes, TakeWeightsAsOneRankDoes) {
  std::map<std::string, double> worst;
  std::map<bool, int> by_tp;
  const uint64_t stride = one_in(9, 41);
  for (uint64_t seed = 7001; seed <= 7000 + kMeshes; ++seed) {
    if (seed % stride != 0) continue;
    Combination c = mesh_drawn(seed);
    if (seed % 5 == 1) c.offload = "states";
    if (seed % 5 == 2) c.offload = "nvme";
    worst[c.precision] = std::max(worst[c.precision], expect_takes_weights_as_one_rank(c));
    ++by_tp[c.tp > 1];
  }
  EXPECT_GT(by_tp[true], 0);
  EXPECT_GT(by_tp[false], 0);
  for (const auto& [precision, apart] : worst)
    std::printf("weights in %s, first losses %.2g apart at most\n", precision.c_str(), apart);
}

}  // namespace
}  // namespace herd::train
