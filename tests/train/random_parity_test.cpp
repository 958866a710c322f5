// Models drawn by chance train as one rank without techniques trains them, whatever ZeRO stage, recompute, precision,
// ranks and micro-batches; also with shards over two axes, cut into the stages of a pipeline, and on meshes drawn by
// chance. A combination's model follows from its seed, which a failure names together with what was drawn.
#include <gtest/gtest.h>

#include <cstdlib>

#include "random_run.h"

namespace herd::train {
namespace {

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
      if (c.tp == 1 && (c.seed / period + c.seed % period) % 3 == 2) c.kind = "moe";
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
                     seed % 2 == 0 ? "gpt" : "llama", stages, true, 3e-4, 1e-5});
    }
  }
  if (std::getenv("HERD_FULL_TESTS") == nullptr) {  // one of up to four ranks, another for each stage and precision
    std::erase_if(all, [](const Combination& c) { return c.ranks > 4; });
    all = {all[static_cast<size_t>(4 * (precision == "fp32" ? 0 : precision == "bf16" ? 1 : 2) + zero) % all.size()]};
  }
  check(all, 1, 6);
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
