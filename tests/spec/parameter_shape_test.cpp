#include "herd/spec/parameter_shape.h"

#include <gtest/gtest.h>

#include "herd/spec/build_model_table.h"

namespace herd::spec {
namespace {

// Of eight query heads and two key heads, of width 2, each of four ranks has two of the former and one of the latter.
TEST(ParameterShape, CutsQueriesAndCopiedKeysEachByItself) {
  RunFile run;
  run.model = {.layers = 1, .width = 16, .heads = 8, .context = 4, .vocab = 32};
  run.model.kv_heads = 2, run.model.head_width = 2, run.mesh.tp = 4;
  const ModelTable table = program_table(run, 1);
  const auto parameter = [&](const std::string& group) {
    for (const ParameterGroupShape& one : table.groups) {
      if (one.name == group) return one.parameters.at(0);
    }
    return ParameterShape{};
  };
  const ParameterShape queries = parameter("h.0.tp"), keys = parameter("h.0.keys");
  EXPECT_EQ(queries.name, "h.0.attn.qkv.weight");
  EXPECT_EQ(keys.name, "h.0.attn.qkv.weight");
  EXPECT_EQ(keys.sizes, (std::vector<int64_t>{16 + 2 * 4, 16}));
  EXPECT_EQ(queries.elements(), 16 * 16);
  EXPECT_EQ(keys.elements(), 8 * 16);
  for (int place = 0; place < 4; ++place) {
    const int64_t key = 16 + place / 2 * 2;
    EXPECT_EQ(cut_spans(queries, 4, place), (std::vector<IndexSpan>{{4 * place, 4 * place + 4}}));
    EXPECT_EQ(cut_spans(keys, 4, place), (std::vector<IndexSpan>{{key, key + 2}, {key + 4, key + 6}}));
  }
  EXPECT_EQ(table.parameters(), model_table(run, 1).parameters());
}

}  // namespace
}  // namespace herd::spec
