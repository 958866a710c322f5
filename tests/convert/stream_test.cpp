// Reads slices of weights, as ranks of any layout hold them, from each format; finds NaN and infinity on the way.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "herd/convert/convert.h"
#include "model_fixture.h"
#include "tests/support/expect_error.h"

namespace herd::convert {
namespace {

namespace fs = std::filesystem;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

spec::RunFile small_llama_run() {
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
    const auto checkpoint = save_model(root / (kind + "_runs"), llama ? small_llama_run() : small_run(), 3);
    convert({.source = checkpoint, .out = root / kind, .to = llama ? Format::kLlama : Format::kGpt2}, unsynced_files());
    expect_slices(checkpoint, checkpoint);
    expect_slices(root / kind, checkpoint);
  }
}

// Row 3 of the weight that GPT-2 stores turned, and its last element.
void spoil(const std::string& name, std::vector<float>& values) {
  if (name == "h.1.mlp.up.weight") values[3 * 36 + 5] = kInfinity, values.back() = kNan;
  if (name == "ln_f.bias.exp_avg") values[0] = kNan;  // is no weight
}

TEST(Stream, RefusesAWeightThatIsNotFinite_NamingItAndHowManyAndWhere) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run(), 2, spoil);
  for (const Format format : {Format::kHerd, Format::kGpt2}) {
    EXPECT_ERROR(convert({.source = checkpoint, .out = root / "out", .to = format}, unsynced_files()), Code::kBadConfig,
                 "weight \"h.1.mlp.up.weight\" of " + checkpoint.string(),
                 "2 of its 1800 elements are NaN or infinite, the first, infinity, at [3, 5]", "fix: ");
    EXPECT_FALSE(fs::exists(root / "out")) << "nothing is left";
  }
}

TEST(Stream, RefusesASliceWithARowThatIsNotFinite_AndTakesOthers) {
  TemporaryFolder root;
  const auto checkpoint = save_model(root / "runs", small_run(), 2, spoil);
  const auto source = open_weights(checkpoint);
  for (const Weight& weight : source->weights()) {
    if (weight.name != "h.1.mlp.up.weight") continue;
    EXPECT_EQ(slice_of(*source, weight, {{{4, 49}, {0, 36}}, {0, 45 * 36}}).size(), 45u * 36);
    EXPECT_ERROR(slice_of(*source, weight, {{{40, 50}, {0, 36}}, {0, 360}}), Code::kBadConfig, "2 of its 1800 elements",
                 "at [3, 5]");
  }
}

TEST(Stream, RefusesInfinityOf16Bits_InAFolderOfTransformers) {
  TemporaryFolder root;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto out = root / std::string(dtype_name(dtype));
    convert({.source = save_model(root / "runs", small_run()), .out = out, .to = Format::kGpt2, .dtype = dtype},
            unsynced_files());
    std::string file = read_text(out / "model.safetensors");
    const uint16_t infinity = dtype == DType::kBF16 ? 0xff80 : 0xfc00;
    std::memcpy(file.data() + file.size() - 2, &infinity, sizeof infinity);
    write_text(out / "model.safetensors", file);
    EXPECT_ERROR(convert({.source = out, .out = root / "back"}, unsynced_files()), Code::kBadConfig,
                 "weight \"ln_f.bias\"", "1 of its 36 elements is NaN or infinite, the first, infinity, at [35]");
  }
}

}  // namespace
}  // namespace herd::convert
