// Reads slices of weights, as ranks of any layout hold them, from each format.
#include <gtest/gtest.h>

#include "herd/convert/convert.h"
#include "model_fixture.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;

spec::RunFile small_llama() {
  return small_run({"model.kind=llama", "model.kv_heads=1", "model.head_width=16", "model.tie_embeddings=false"});
}

std::vector<float> slice_of(WeightSource& source, const Weight& weight, const TensorSlice& slice) {
  std::vector<float> out;
  read_slice(source, weight, slice,
             [&](std::span<const float> some) { out.insert(out.end(), some.begin(), some.end()); });
  return out;
}

// Whole, cut in two along either dim, a box inside, one row, one column, and none.
std::vector<std::vector<IndexRange>> boxes_of(const Weight& weight) {
  const int64_t R = weight.rows(), C = weight.columns();
  std::vector<std::vector<IndexRange>> boxes;
  for (const auto& [rows, columns] : {std::pair(IndexRange{0, R}, IndexRange{0, C}),
                                      {{R / 2, R}, {0, C}},
                                      {{0, R}, {0, C / 2}},
                                      {{0, R}, {C / 3, C}},
                                      {{R / 3, R - R / 4}, {C / 4, C - 1}},
                                      {{R - 1, R}, {0, C}},
                                      {{0, R}, {C - 1, C}},
                                      {{0, R}, {2, 2}},
                                      {{0, 0}, {0, C}}}) {
    if (weight.shape.size() == 2)
      boxes.push_back({rows, columns});
    else
      boxes.push_back({columns});
  }
  return boxes;
}

void expect_slices(const fs::path& folder, const fs::path& checkpoint) {
  const auto source = open_weights(folder);
  for (const Weight& weight : source->weights()) {
    const std::vector<float> all = floats_of(checkpoint, weight.name);
    for (const auto& box : boxes_of(weight)) {
      const IndexRange rows = box.size() == 2 ? box[0] : IndexRange{0, 1}, columns = box.back();
      std::vector<float> boxed;
      for (int64_t r = rows.begin; r < rows.end; ++r)
        for (int64_t c = columns.begin; c < columns.end; ++c)
          boxed.push_back(all[static_cast<size_t>(r * weight.columns() + c)]);
      const auto count = static_cast<int64_t>(boxed.size());
      for (const IndexRange elements :
           {IndexRange{0, count}, {count / 3, count}, {0, count / 2}, {count / 2, count / 2}}) {
        const std::vector<float> expected(boxed.begin() + elements.begin, boxed.begin() + elements.end);
        ASSERT_EQ(slice_of(*source, weight, {box, elements}), expected) << weight.name << " of " << folder;
      }
    }
  }
}

TEST(ReadSlice, GivesTheElementsOfAnyBox_OfEveryFormat) {
  TemporaryFolder root;
  for (const bool llama : {false, true}) {
    const std::string kind = llama ? "llama" : "gpt2";
    const auto checkpoint = save_model(root / (kind + "_runs"), llama ? small_llama() : small_run(), 3);
    convert({.source = checkpoint, .out = root / kind, .to = llama ? Format::kLlama : Format::kGpt2}, unsynced_files());
    expect_slices(checkpoint, checkpoint);
    expect_slices(root / kind, checkpoint);
  }
}

}  // namespace
}  // namespace herd::convert
