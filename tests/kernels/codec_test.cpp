#include "herd/kernels/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "herd/base/error.h"
#include "herd/kernels/finite.h"
#include "herd/kernels/half_array.h"
#include "tests/kernels/codec_inputs.h"

namespace herd::kernels {
namespace {

const std::vector<int64_t> kCounts = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 63, 255, 256, 257, 511, 513, 1000, 5001};

std::vector<std::byte> encoded_with_guard(const CodecSettings& codec, const std::vector<float>& values) {
  const int64_t count = static_cast<int64_t>(values.size()), bytes = encoded_bytes(codec, count);
  std::vector<std::byte> encoded(static_cast<size_t>(bytes) + 16, std::byte{0x5a});
  encode(codec, values.data(), count, encoded.data());
  for (size_t i = static_cast<size_t>(bytes); i < encoded.size(); ++i)
    EXPECT_EQ(encoded[i], std::byte{0x5a}) << "beyond the bytes";
  encoded.resize(static_cast<size_t>(bytes));
  return encoded;
}

std::vector<float> decoded(const CodecSettings& codec, const std::vector<std::byte>& encoded, size_t count) {
  std::vector<float> values(count + 4, 7.0f);
  decode(codec, encoded.data(), static_cast<int64_t>(count), values.data());
  for (size_t i = count; i < values.size(); ++i) EXPECT_EQ(values[i], 7.0f) << "beyond the elements";
  values.resize(count);
  return values;
}

std::vector<float> coded(const CodecSettings& codec, const std::vector<float>& values) {
  return decoded(codec, encoded_with_guard(codec, values), values.size());
}

double square_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

double sum_of_squares_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * x;
  return sum;
}

TEST(Codec, StatesItsBytes) {
  struct Case {
    CodecKind kind;
    int64_t elements, bytes;
  };
  for (const Case& c :
       {Case{CodecKind::kBf16, 1001, 2002}, Case{CodecKind::kInt8, 512, 2 * 4 + 512},
        Case{CodecKind::kInt8, 513, 3 * 4 + 513}, Case{CodecKind::kInt4, 513, 3 * 4 + 257},
        Case{CodecKind::kInt8Quantiles, 512, 128 * 4 + 2 * 4 + 512},
        Case{CodecKind::kInt4Quantiles, 513, 8 * 4 + 3 * 4 + 257}, Case{CodecKind::kTopK, 1000, 80},
        Case{CodecKind::kTopK, 1049, 80}, Case{CodecKind::kTopK, 1050, 88}, Case{CodecKind::kTopK, 1, 8}})
    EXPECT_EQ(encoded_bytes({.kind = c.kind}, c.elements), c.bytes) << codec_row(c.kind).name << c.elements;
  for (const CodecRow& row : codecs()) {
    EXPECT_EQ(encoded_bytes({.kind = row.kind}, 0), 0) << row.name;
    EXPECT_EQ(&codec_row(row.kind), &row);
    EXPECT_EQ(find_codec(row.name), &row);
  }
  EXPECT_EQ(find_codec("int9"), nullptr);
}

TEST(Codec, KeepsTheBoundOfItsError_OnEveryKindOfInput) {
  for (const CodecRow& row : codecs()) {
    for (const int64_t count : kCounts) {
      for (const CodecInput& input : codec_inputs(count)) {
        for (const int64_t block : {256, 16, 2}) {
          const CodecSettings codec{.kind = row.kind, .block = block, .ratio = 0.1};
          const std::vector<float> result = coded(codec, input.values);
          for (int64_t i = 0; i < count; ++i) {
            const int64_t begin = i / block * block, end = std::min(begin + block, count);
            double amax = 0;
            for (int64_t j = begin; j < end; ++j)
              amax = std::max(amax, std::abs(double{input.values[static_cast<size_t>(j)]}));
            const double x = input.values[static_cast<size_t>(i)];
            ASSERT_LE(std::abs(x - result[static_cast<size_t>(i)]),
                      row.bound.of_value * std::abs(x) + row.bound.of_block_max * amax + kErrorFloor)
                << row.name << " " << input.name << " " << count << " in blocks of " << block << ": element " << i;
          }
        }
      }
    }
  }
}

// The bytes are those of the same numbers in fp32, and what is decoded is that, rounded once.
TEST(Codec, TakesNumbersOfSixteenBits) {
  for (const CodecKind kind : {CodecKind::kInt8, CodecKind::kInt4}) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t count : kCounts) {
        const auto size = static_cast<size_t>(count);
        std::vector<float> values = normal_values(count);
        std::vector<uint16_t> half(size), again(size + 1, 0x5a5a);
        std::vector<float> wide_again(size + 1, 7.0f);
        void* const from = type == DType::kF32 ? static_cast<void*>(values.data()) : half.data();
        void* const to = type == DType::kF32 ? static_cast<void*>(wide_again.data()) : again.data();
        if (type != DType::kF32) {
          narrow(type, values.data(), half.data(), count);
          widen(type, half.data(), values.data(), count);
        }
        const CodecSettings codec{.kind = kind};
        const std::vector<std::byte> expected = encoded_with_guard(codec, values);
        std::vector<std::byte> encoded(expected.size());
        encode(codec, type, from, count, encoded.data());
        EXPECT_EQ(encoded, expected) << dtype_name(type) << " " << count;
        std::vector<float> exact = decoded(codec, expected, size);
        decode(codec, type, encoded.data(), count, to);
        if (type == DType::kF32) {
          EXPECT_EQ(wide_again.back(), 7.0f);
          wide_again.pop_back();
          EXPECT_EQ(wide_again, exact) << count;
          continue;
        }
        std::vector<uint16_t> rounded(size);
        narrow(type, exact.data(), rounded.data(), count);
        EXPECT_EQ(again.back(), 0x5a5a);
        again.pop_back();
        EXPECT_EQ(again, rounded) << dtype_name(type) << " " << count;
        const double eps = type == DType::kBF16 ? 0x1p-8 : 0x1p-11;
        widen(type, again.data(), wide_again.data(), count);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t begin = i / codec.block * codec.block, end = std::min(begin + codec.block, count);
          double amax = 0;
          for (int64_t j = begin; j < end; ++j) amax = std::max(amax, std::abs(double{values[static_cast<size_t>(j)]}));
          const double x = values[static_cast<size_t>(i)], y = wide_again[static_cast<size_t>(i)];
          ASSERT_LE(std::abs(x - y), codec_row(kind).bound.of_block_max * amax + eps * std::abs(y) + 0x1p-25)
              << dtype_name(type) << " " << count << ": element " << i;
        }
      }
    }
  }
}

TEST(Codec, AddsTermsInTheirOrder_AndRoundsOnce) {
  for (const CodecKind kind : {CodecKind::kInt8, CodecKind::kInt4}) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const int64_t count : {0, 1, 255, 257, 1000}) {
        for (const bool adds : {false, true}) {
          const auto size = static_cast<size_t>(count);
          const CodecSettings codec{.kind = kind};
          std::vector<float> expected = adds ? normal_values(count, 7) : std::vector<float>(size, 0.0f);
          std::vector<uint16_t> half(size);
          narrow(DType::kBF16, expected.data(), half.data(), count);
          if (type == DType::kBF16) widen(type, half.data(), expected.data(), count);
          std::vector<float> sums = adds ? expected : std::vector<float>(size, 9.0f);
          std::vector<std::byte> terms;
          for (const uint32_t seed : {1, 2, 3}) {
            const auto term = encoded_with_guard(codec, normal_values(count, seed));
            decode_add(codec, term.data(), count, 1, expected.data());
            terms.insert(terms.end(), term.begin(), term.end());
          }
          void* const to = type == DType::kF32 ? static_cast<void*>(sums.data()) : half.data();
          decode_sum(codec, type, terms.data(), 3, count, adds, to);
          if (type == DType::kF32) {
            EXPECT_EQ(sums, expected) << count;
            continue;
          }
          std::vector<uint16_t> rounded(size);
          narrow(type, expected.data(), rounded.data(), count);
          EXPECT_EQ(half, rounded) << count;
        }
      }
    }
  }
}

// Terms lie apart, as those of several shards do.
TEST(Codec, EncodesSumsOfTerms) {
  for (const CodecKind kind : {CodecKind::kInt8, CodecKind::kInt4}) {
    for (const int64_t count : kCounts) {
      const CodecSettings codec{.kind = kind};
      const int64_t bytes = encoded_bytes(codec, count), apart = bytes + 24;
      std::vector<std::byte> terms(static_cast<size_t>(3 * apart)),
          sum(static_cast<size_t>(bytes + 1), std::byte{0x5a});
      std::vector<float> expected(static_cast<size_t>(count));
      std::vector<std::byte> together;
      for (int term = 0; term < 3; ++term) {
        std::vector<float> values = normal_values(count);
        for (float& value : values) value *= static_cast<float>(term + 1);
        std::byte* const at = terms.data() + term * apart;
        encode(codec, DType::kF32, values.data(), count, at);
        together.insert(together.end(), at, at + bytes);
      }
      decode_sum(codec, DType::kF32, together.data(), 3, count, false, expected.data());
      std::vector<std::byte> encoded(static_cast<size_t>(bytes));
      encode(codec, DType::kF32, expected.data(), count, encoded.data());
      encode_sum(codec, terms.data(), 3, apart, count, sum.data());
      EXPECT_EQ(sum.back(), std::byte{0x5a});
      sum.pop_back();
      EXPECT_EQ(sum, encoded) << count;
    }
  }
}

TEST(Codec, KeepsWhatIsNotFinite) {
  for (const CodecRow& row : codecs()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
      for (const int64_t count : {1, 2, 9, 257, 1000}) {
        for (const int64_t place : {int64_t{0}, count / 2, count - 1}) {
          std::vector<float> values = heavy_tailed(count);
          values[static_cast<size_t>(place)] = bad;
          const std::vector<float> result = coded({.kind = row.kind}, values);
          EXPECT_FALSE(std::isfinite(result[static_cast<size_t>(place)])) << row.name << " " << bad << " " << count;
        }
      }
    }
    for (const int64_t count : kCounts)
      EXPECT_EQ(first_non_finite(coded({.kind = row.kind}, normal_values(count)).data(), count), -1) << row.name;
  }
}

TEST(Codec, HasTheSameBytesOnEveryInstructionSet) {
  for (const CodecRow& row : codecs()) {
    for (const int64_t count : {1, 31, 1000, 1 << 18}) {
      const CodecSettings codec{.kind = row.kind};
      const std::vector<float> values = heavy_tailed(count);
      const auto expected = encoded_with_guard(codec, values);
      const std::vector<float> expected_values = decoded(codec, expected, values.size());
      for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
        hwy::SetSupportedTargetsForTest(targets & -targets);
        EXPECT_EQ(encoded_with_guard(codec, values), expected) << row.name << " " << count;
        EXPECT_EQ(decoded(codec, expected, values.size()), expected_values) << row.name << " " << count;
        hwy::SetSupportedTargetsForTest(0);
      }
    }
  }
}

TEST(Codec, AddsWhatItDecodes_TimesAFactor) {
  for (const CodecRow& row : codecs()) {
    for (const int64_t count : kCounts) {
      const CodecSettings codec{.kind = row.kind, .ratio = 0.1};
      const auto encoded = encoded_with_guard(codec, heavy_tailed(count));
      const std::vector<float> terms = decoded(codec, encoded, static_cast<size_t>(count));
      for (const float factor : {1.0f, -1.0f, 0.5f}) {
        std::vector<float> sums = normal_values(count, 9), expected = sums;
        for (size_t i = 0; i < terms.size(); ++i) expected[i] += factor * terms[i];
        decode_add(codec, encoded.data(), count, factor, sums.data());
        EXPECT_EQ(sums, expected) << row.name << " " << count;
      }
    }
  }
}

TEST(Codec, KeepsZerosAndTheLargestOfEachBlock) {
  for (const CodecKind kind :
       {CodecKind::kInt8, CodecKind::kInt4, CodecKind::kInt8Quantiles, CodecKind::kInt4Quantiles}) {
    std::vector<float> values = heavy_tailed(1000);
    for (size_t i = 0; i < values.size(); i += 3) values[i] = 0;
    const std::vector<float> result = coded({.kind = kind}, values);
    for (size_t i = 0; i < values.size(); i += 3) ASSERT_EQ(result[i], 0.0f) << codec_row(kind).name << " " << i;
    const auto largest = std::max_element(values.begin(), values.begin() + 256,
                                          [](float a, float b) { return std::abs(a) < std::abs(b); });
    EXPECT_NEAR(result[static_cast<size_t>(largest - values.begin())], *largest, 1e-6 * std::abs(*largest));
  }
}

// At no more bytes: blocks of quantiles are a little longer, which pays for the levels that they send.
TEST(Codec, QuantilesHaveALowerErrorThanMultiples_AtEqualBytes) {
  const int64_t count = 1 << 18;
  for (const auto& values : {normal_values(count), heavy_tailed(count)}) {
    for (const auto& [plain, by_quantiles, ratio] : {std::tuple{CodecKind::kInt8, CodecKind::kInt8Quantiles, 0.9},
                                                     std::tuple{CodecKind::kInt4, CodecKind::kInt4Quantiles, 0.9}}) {
      const CodecSettings multiples{.kind = plain}, quantiles{.kind = by_quantiles, .block = 320};
      EXPECT_LE(encoded_bytes(quantiles, count), encoded_bytes(multiples, count));
      EXPECT_LT(square_error(coded(quantiles, values), values), ratio * square_error(coded(multiples, values), values))
          << codec_row(by_quantiles).name;
    }
  }
}

TEST(Codec, TopKLosesNoMoreThanItsShareOfTheSquares) {
  for (const double ratio : {0.01, 0.1, 0.5, 1.0}) {
    for (const int64_t count : {100, 1000, 5000}) {
      for (const CodecInput& input : codec_inputs(count)) {
        const CodecSettings codec{.kind = CodecKind::kTopK, .ratio = ratio};
        const auto kept = static_cast<double>(encoded_bytes(codec, count)) / 8;
        EXPECT_LE(square_error(coded(codec, input.values), input.values),
                  (1 - kept / static_cast<double>(count)) * sum_of_squares_of(input.values) * (1 + 1e-9))
            << input.name << " " << ratio;
      }
    }
  }
}

TEST(Codec, TopKOfFiveIsWhatTheTextbookSays) {
  const CodecSettings codec{.kind = CodecKind::kTopK, .ratio = 0.6};
  const auto encoded = encoded_with_guard(codec, {0.3f, 1.4f, -2.1f, 0.0f, 0.9f});
  std::vector<float> values(3);
  std::vector<uint32_t> indices(3);
  ASSERT_EQ(encoded.size(), 24u);
  std::memcpy(values.data(), encoded.data(), 12);
  std::memcpy(indices.data(), encoded.data() + 12, 12);
  EXPECT_THAT(values, testing::ElementsAre(1.4f, -2.1f, 0.9f));
  EXPECT_THAT(indices, testing::ElementsAre(1u, 2u, 4u));
}

TEST(Codec, TopKRefusesAnIndexThatThereIsNot) {
  const CodecSettings codec{.kind = CodecKind::kTopK, .ratio = 0.2};
  std::vector<std::byte> encoded = encoded_with_guard(codec, {1, 2, 3, 4, 5});
  encoded[4] = std::byte{5};
  std::vector<float> values(5);
  EXPECT_THROW(decode(codec, encoded.data(), 5, values.data()), Error);
}

}  // namespace
}  // namespace herd::kernels
