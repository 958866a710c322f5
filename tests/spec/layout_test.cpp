#include "herd/spec/layout.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <set>

#include "herd/base/error.h"
#include "herd/data/batch.h"
#include "herd/spec/supported.h"
#include "tests/support/expect_error.h"

namespace herd::spec {
namespace {

std::string refusal(const RunFile& run, int world_size) {
  try {
    resolve_mesh(run, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  return "";
}

TEST(Layout, NamesTheEquationAndTheFix_WhenTheMeshDoesNotCoverTheWorld) {
  RunFile run;
  run.mesh = {.dp = 4, .tp = 2, .pp = 3};
  EXPECT_EQ(
      refusal(run, 32),
      "mesh does not cover the world: dp 4 * tp 2 * pp 3 = 24, but world_size = 32\n  fix: pp 4, or dp 8 with pp 2");
  run.mesh = {.tp = 2, .pp = 3};
  EXPECT_EQ(refusal(run, 32),
            "mesh does not cover the world: tp 2 * pp 3 = 6 does not divide world_size = 32\n"
            "  fix: dp 8 with pp 2")
      << "a model of 14 blocks has no 16 stages";
  run.model = {.heads = 4, .ffn = 50};
  run.mesh = {.dp = 2, .tp = 2};
  EXPECT_EQ(refusal(run, 8),
            "mesh does not cover the world: dp 2 * tp 2 = 4, but world_size = 8\n  fix: dp 4, or dp 8 with tp 1");
  EXPECT_EQ(refusal(run, 2), "mesh does not cover the world: dp 2 * tp 2 = 4, but world_size = 2\n  fix: tp 1");
  run.model = {};
  run.mesh = {.dp = 3};
  EXPECT_EQ(refusal(run, 4), "mesh does not cover the world: dp 3 = 3, but world_size = 4\n  fix: dp 4");
  run.mesh = {.tp = 8};
  EXPECT_THAT(refusal(run, 4), testing::HasSubstr("tp 8 alone is more than world_size = 4"));
  run.mesh = {
      .dp = 1000000, .fsdp = 1000000, .tp = 1000000, .pp = 1000000, .cp = 1000000};  // 10^30, which no integer holds
  EXPECT_THAT(refusal(run, 1000000),
              testing::HasSubstr("multiply to more than 1099511627776, but world_size = 1000000"));
  run.mesh = {.dp = 2};
  EXPECT_EQ(refusal(run, 2), "");
  EXPECT_THAT(refusal(run, 0), testing::HasSubstr("number of ranks must be >= 1"));
  run.mesh = {.ep = 3};
  EXPECT_THAT(refusal(run, 4), testing::HasSubstr("mesh.ep must divide dp * fsdp * cp: 4 % 3 = 1"));
}

// Neighbours hold the experts together; ranks that hold the same ones are ep ranks apart.
TEST(Layout, NamesTheRanksThatHoldExperts) {
  RunFile run;
  run.mesh = {.pp = 2, .ep = 2};
  const Layout layout = resolve_mesh(run, 12);
  EXPECT_EQ(layout.mesh.ranks(layout.expert_axis, 9), (std::vector<int>{8, 9}));
  EXPECT_EQ(layout.mesh.ranks(layout.expert_sum_axis, 9), (std::vector<int>{7, 9, 11}));
  const Layout all = resolve_mesh(run, 4);
  EXPECT_EQ(all.mesh.ranks(all.expert_axis, 3), (std::vector<int>{2, 3}));
  EXPECT_EQ(all.expert_sum_axis, kNoAxis) << "no two ranks hold the same experts";
}

// No two ranks have the same part of samples, tokens, layers and stages.
TEST(Layout, SaysWhatTheRanksOfEachAxisDivide) {
  using enum Divided;
  for (const int dp : {1, 2}) {
    for (const int fsdp : {1, 3}) {
      for (const int cp : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const int pp : {1, 3}) {
            RunFile run;
            run.mesh = {.dp = dp, .fsdp = fsdp, .tp = tp, .pp = pp, .cp = cp, .ep = dp * cp};
            const int ranks = dp * fsdp * cp * tp * pp;
            const Layout layout = resolve_mesh(run, ranks);
            const Mesh& mesh = layout.mesh;
            EXPECT_EQ(mesh.size(mesh.dividing(kSamples)), dp * fsdp) << summary(layout);
            EXPECT_EQ(mesh.size(mesh.dividing(kTokens)), cp) << summary(layout);
            EXPECT_EQ(mesh.size(mesh.dividing(kLayers)), tp) << summary(layout);
            EXPECT_EQ(mesh.size(mesh.dividing(kStages)), pp) << summary(layout);
            EXPECT_EQ(mesh.size(mesh.dividing(kExperts)), dp * cp) << summary(layout);
            EXPECT_EQ(mesh.dividing(kSamples | kTokens), layout.gradient_axis) << summary(layout);
            std::set<std::vector<int>> parts;
            for (int rank = 0; rank < ranks; ++rank) {
              std::vector<int> part;
              for (const Divided what : {kSamples, kTokens, kLayers, kStages})
                part.push_back(mesh.index(mesh.dividing(what), rank));
              parts.insert(part);
            }
            EXPECT_EQ(parts.size(), static_cast<size_t>(ranks)) << summary(layout);
          }
        }
      }
    }
  }
}

TEST(Layout, CountsTheSamplesAndMicroBatchesThatRanksReallyRead) {
  RunFile run;
  for (int world : {1, 2, 3, 4, 7, 16}) {
    for (int64_t batch : {1, 2, 5, 12, 17}) {
      for (int64_t micro_batch : {1, 2, 5}) {
        run.train.batch = batch;
        run.train.micro_batch = micro_batch;
        const Layout layout = resolve_mesh(run, world);
        int64_t least = batch, most = 0;
        for (int rank = 0; rank < world; ++rank) {
          const SampleRange own = samples_of_rank(0, batch, rank, world);
          least = std::min(least, own.end - own.begin);
          most = std::max(most, own.end - own.begin);
        }
        EXPECT_EQ(layout.samples_min, least) << batch << " over " << world;
        EXPECT_EQ(layout.samples_max, most) << batch << " over " << world;
        EXPECT_EQ(layout.micro_batches, num_micro_batches(batch, micro_batch, world));
      }
    }
  }
}

TEST(Layout, SaysEverythingInOneLine) {
  RunFile run;
  EXPECT_EQ(summary(resolve_mesh(run, 2)),
            "2 ranks = dp 2 | 12 sequences a step = 6 a rank = 3 micro-batches of 2 | 3072 tokens a step");
  run.train.batch = 5;
  run.mesh.pp = 2;
  EXPECT_EQ(summary(resolve_mesh(run, 4)),
            "4 ranks = dp 2 * pp 2 | 5 sequences a step = 2 or 3 a rank = 2 micro-batches of 2 | 1280 tokens a step");
}

TEST(Layout, RefusesSharedMemoryBetweenHosts) {
  RunFile run;
  run.comm.transport = "shm";
  EXPECT_NO_THROW(refuse_transport(run, 1));
  EXPECT_ERROR(refuse_transport(run, 2), Code::kBadConfig, "\"shm\"", "on 2", "fix: comm.transport = \"auto\"");
  run.comm.transport = "auto";
  EXPECT_NO_THROW(refuse_transport(run, 2));
}

}  // namespace
}  // namespace herd::spec
