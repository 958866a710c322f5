// The codecs on gradients of a model that trains on a text: the bytes and the error that their table states.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "herd/kernels/codec.h"
#include "herd/models/decoder.h"
#include "herd/spec/build_model_table.h"
#include "training_run_internal.h"

namespace herd::models {
namespace {

using kernels::CodecKind;
using kernels::CodecRow;
using kernels::CodecSettings;

// Returns the gradients of all parameters in the first steps of a GPT on the license, byte by byte.
std::vector<std::vector<float>> gradients_of_text(int steps) {
  const std::filesystem::path source = std::getenv("HERD_SOURCE_DIR");
  std::ifstream file(source / "LICENSE", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  spec::RunFile run;
  run.model.layers = 2, run.model.width = 96, run.model.ffn = 384, run.model.heads = 4, run.model.kv_heads = 4;
  run.model.head_width = 24, run.model.context = 64, run.model.vocab = 256;
  constexpr int64_t kRows = 16;
  TrainingRun training(make_model(run.model, spec::model_table(run, kRows), RankPlace{}));
  std::vector<std::vector<float>> out;
  for (int step = 0; step < steps; ++step) {
    at::Tensor inputs = at::empty({kRows, run.model.context}, at::kLong), targets = at::empty_like(inputs);
    for (int64_t i = 0; i < inputs.numel(); ++i) {
      const size_t at = static_cast<size_t>(step * inputs.numel() + i) % (text.size() - 1);
      inputs.view(-1)[i] = static_cast<unsigned char>(text.at(at));
      targets.view(-1)[i] = static_cast<unsigned char>(text.at(at + 1));
    }
    nn::Context context{.training = true, .step = step, .samples = {}, .tokens = run.model.context};
    for (int64_t row = 0; row < kRows; ++row) context.samples.push_back(step * kRows + row);
    training.gradient(inputs, targets, 1, context);
    const at::Tensor flat = training.gradients();
    out.emplace_back(flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel());
    training.step(1);
  }
  return out;
}

// Recomputes what a codec takes, of its definition.
int64_t stated_bytes(const CodecSettings& codec, int64_t elements) {
  const int64_t blocks = (elements + codec.block - 1) / codec.block, scales = 4 * blocks;
  switch (codec.kind) {
    case CodecKind::kBf16:
      return 2 * elements;
    case CodecKind::kInt8:
      return scales + elements;
    case CodecKind::kInt4:
      return scales + (elements + 1) / 2;
    case CodecKind::kInt8Quantiles:
      return 4 * 128 + scales + elements;
    case CodecKind::kInt4Quantiles:
      return 4 * 8 + scales + (elements + 1) / 2;
    case CodecKind::kTopK:
      return 8 * std::max<int64_t>(1, std::llround(codec.ratio * static_cast<double>(elements)));
  }
  return -1;
}

struct Coded {
  int64_t bytes = 0;
  std::vector<float> values;
  double square_error = 0;
};

Coded coded_gradient(const CodecSettings& codec, const std::vector<float>& gradient) {
  const auto count = static_cast<int64_t>(gradient.size());
  Coded out{.bytes = kernels::encoded_bytes(codec, count), .values = std::vector<float>(gradient.size())};
  std::vector<std::byte> encoded(static_cast<size_t>(out.bytes));
  kernels::encode(codec, gradient.data(), count, encoded.data());
  kernels::decode(codec, encoded.data(), count, out.values.data());
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double lost = double{gradient[i]} - double{out.values[i]};
    out.square_error += lost * lost;
  }
  return out;
}

TEST(CodecGradients, KeepTheStatedRatioAndError) {
  for (const std::vector<float>& gradient : gradients_of_text(3)) {
    const auto count = static_cast<int64_t>(gradient.size());
    double squares = 0;
    for (const float x : gradient) squares += double{x} * double{x};
    ASSERT_GT(squares, 0);
    for (const CodecRow& row : kernels::codecs()) {
      const CodecSettings codec{.kind = row.kind, .ratio = 0.01};
      const Coded coded = coded_gradient(codec, gradient);
      EXPECT_EQ(coded.bytes, stated_bytes(codec, count)) << row.name;
      if (row.kind == CodecKind::kTopK) {  // what it leaves out is no more than as many others of the mean square
        const double kept = static_cast<double>(coded.bytes) / 8 / static_cast<double>(count);
        EXPECT_LE(coded.square_error, (1 - kept) * squares);
        EXPECT_LT(coded.square_error, 0.9 * squares) << "a hundredth of the elements has a tenth of the squares";
        continue;
      }
      EXPECT_LT(coded.square_error, (row.name.starts_with("int4") ? 0.5 : 0.01) * squares) << row.name;
      for (int64_t begin = 0; begin < count; begin += codec.block) {
        const int64_t end = std::min(count, begin + codec.block);
        double amax = 0;
        for (int64_t i = begin; i < end; ++i) amax = std::max(amax, std::abs(double{gradient[static_cast<size_t>(i)]}));
        for (int64_t i = begin; i < end; ++i) {
          const double x = gradient[static_cast<size_t>(i)], lost = std::abs(x - coded.values[static_cast<size_t>(i)]);
          ASSERT_LE(lost, row.bound.of_value * std::abs(x) + row.bound.of_block_max * amax + kernels::kErrorFloor)
              << row.name << " element " << i;
        }
      }
    }
  }
}

// Longer blocks pay for the levels that quantiles send.
TEST(CodecGradients, LoseLessByQuantilesThanByMultiples_AtEqualBytes) {
  for (const std::vector<float>& gradient : gradients_of_text(3)) {
    for (const auto& [plain, by_quantiles] : {std::pair{CodecKind::kInt8, CodecKind::kInt8Quantiles},
                                              std::pair{CodecKind::kInt4, CodecKind::kInt4Quantiles}}) {
      const Coded multiples = coded_gradient({.kind = plain}, gradient);
      const Coded quantiles = coded_gradient({.kind = by_quantiles, .block = 320}, gradient);
      EXPECT_LE(quantiles.bytes, multiples.bytes);
      EXPECT_LT(quantiles.square_error, multiples.square_error) << kernels::codec_row(by_quantiles).name;
    }
  }
}

}  // namespace
}  // namespace herd::models
