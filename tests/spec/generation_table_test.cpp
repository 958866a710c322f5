#include "herd/spec/generation_table.h"

#include <gtest/gtest.h>

#include "herd/spec/build_model_table.h"

namespace herd::spec {
namespace {

RunFile run_of(int tp) {
  RunFile run;
  run.model = {.kind = "llama",
               .layers = 2,
               .width = 48,
               .heads = 6,
               .kv_heads = 2,
               .head_width = 8,
               .ffn = 108,
               .context = 7,
               .vocab = 31,
               .tie_embeddings = false,
               .norm = "rmsnorm"};
  run.mesh.tp = tp;
  run.strategy.sequence_parallel = false;
  return run;
}

TEST(GenerationTable, HasCachesOfAWholeContext_HoweverShortThePassIs) {
  for (const int64_t tokens : {1, 3, 7}) {
    const ModelTable table = generation_table(run_of(1), 3, tokens);
    EXPECT_EQ(table.tokens, 3 * tokens);
    for (const size_t layer : {1, 2}) {
      const BlockShape& block = table.blocks[layer];
      EXPECT_EQ(block.cache_bytes, 2 * 3 * 7 * (2 * 8) * 4);
      EXPECT_EQ(block.input_bytes, 3 * tokens * 48 * 4);
      EXPECT_EQ(block.forward.scratch_bytes, 3 * tokens * (4 * 48 + 3 * 108) * 4);
    }
    EXPECT_EQ(table.blocks[0].cache_bytes, 0);
    EXPECT_EQ(table.blocks[3].logits_bytes, 3 * 31 * 4);
    EXPECT_EQ(table.blocks[3].forward.matmul_flops, 2.0 * 3 * 48 * 31);
    EXPECT_EQ(table.parameters(), program_table(run_of(1), 3).parameters());
  }
}

TEST(GenerationTable, GivesEachRankItsKeyHeads_AndAllOfThemTheLogits) {
  const ModelTable whole = generation_table(run_of(1), 1, 5), half = generation_table(run_of(2), 1, 5);
  const auto caches = [](const ModelTable& table) {
    int64_t bytes = 0;
    for (const BlockShape& block : table.blocks) bytes += block.cache_bytes;
    return bytes;
  };
  EXPECT_EQ(2 * caches(half), caches(whole));
  EXPECT_EQ(half.blocks.back().logits_bytes, whole.blocks.back().logits_bytes);
  // More ranks than key heads hold copies.
  EXPECT_EQ(caches(generation_table(run_of(6), 1, 5)), caches(half));
}

TEST(GenerationTable, ReadsAllWeightsOfALayerInEachPass) {
  const ModelTable table = generation_table(run_of(1), 1, 1);
  const auto weights = static_cast<double>(table.group_elements(1) * 4);
  EXPECT_GT(table.blocks[1].forward.memory_bytes, weights);
  EXPECT_LT(table.blocks[1].forward.memory_bytes, 1.2 * weights);
  EXPECT_LT(table.blocks[0].forward.memory_bytes, 4 * 48 * 4);  // a row of the embedding
}

}  // namespace
}  // namespace herd::spec
