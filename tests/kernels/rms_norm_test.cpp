#include "herd/kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "herd/base/error.h"
#include "herd/kernels/half.h"

namespace herd::kernels {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr int64_t kWidths[] = {1, 15, 16, 17, 33, 100, 768};

// An array of one of the types, read and written in fp32.
class Array {
 public:
  Array(DType type, int64_t count, int64_t offset = 0)
      : type_(type), offset_(offset), bytes_(static_cast<size_t>((count + offset + 1) * size_of(type)), 7) {}
  void* data() { return bytes_.data() + offset_ * size_of(type_); }
  float at(int64_t i) {
    if (type_ == DType::kF32) return read<float>(i);
    return type_ == DType::kBF16 ? float_from_bf16(read<uint16_t>(i)) : float_from_fp16(read<uint16_t>(i));
  }
  void set(int64_t i, float value) {
    if (type_ == DType::kF32) return write(i, value);
    write(i, type_ == DType::kBF16 ? bf16_from_float(value) : fp16_from_float(value));
  }
  float rounded(float value) {  // as the type holds it
    Array one(type_, 1);
    one.set(0, value);
    return one.at(0);
  }
  bool is_untouched_after(int64_t count) {
    const auto end = static_cast<size_t>((count + offset_) * size_of(type_));
    for (size_t i = end; i < bytes_.size(); ++i) {
      if (bytes_[i] != 7) return false;
    }
    return true;
  }

 private:
  template <typename T>
  T read(int64_t i) {
    T value;
    std::memcpy(&value, static_cast<char*>(data()) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  template <typename T>
  void write(int64_t i, T value) {
    std::memcpy(static_cast<char*>(data()) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
  DType type_;
  int64_t offset_;
  std::vector<char> bytes_;
};

void fill(Array& array, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) array.set(i, normal(random));
}

// The sum over a row as the header orders it.
template <typename Term>
float sum(int64_t width, const Term& term) {
  float sums[16] = {};
  for (int64_t i = 0; i < width; ++i) sums[i % 16] += term(i);
  for (int half = 8; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

TEST(RmsNorm, HasTheBitsOfItsHeadersEquations_InEveryTypeAtEveryWidthAndAlignment) {
  constexpr int64_t kRows = 3;
  for (const DType type : kTypes) {
    for (const int64_t width : kWidths) {
      for (const int64_t offset : {0, 1}) {
        const int64_t count = kRows * width;
        Array x(type, count, offset), gain(type, width, offset), y(type, count, offset), dy(type, count, offset),
            dx(type, count, offset);
        fill(x, count, 1), fill(gain, width, 2), fill(dy, count, 3);
        std::vector<float> r(kRows), dgain(static_cast<size_t>(width), 0.5f), expected = dgain;
        rms_norm({type, kRows, width}, x.data(), gain.data(), 1e-5f, y.data(), r.data());
        rms_norm_backward({type, kRows, width}, dy.data(), x.data(), gain.data(), r.data(), dx.data(), dgain.data());
        for (int64_t row = 0; row < kRows; ++row) {
          const auto at = [&](Array& array, int64_t i) { return array.at(row * width + i); };
          const auto w = static_cast<float>(width);
          const float scale = 1.0f / std::sqrt(sum(width, [&](int64_t i) { return at(x, i) * at(x, i); }) / w + 1e-5f);
          ASSERT_EQ(r[static_cast<size_t>(row)], scale);
          const float along = sum(width, [&](int64_t i) { return at(dy, i) * gain.at(i) * at(x, i); }) / w;
          const float back = scale * scale * scale * along;
          for (int64_t i = 0; i < width; ++i) {
            ASSERT_EQ(at(y, i), y.rounded(at(x, i) * scale * gain.at(i))) << dtype_name(type) << " " << width;
            ASSERT_EQ(at(dx, i), dx.rounded(at(dy, i) * gain.at(i) * scale - at(x, i) * back));
            expected[static_cast<size_t>(i)] += at(dy, i) * at(x, i) * scale;
          }
        }
        ASSERT_EQ(dgain, expected);
        EXPECT_TRUE(y.is_untouched_after(count) && dx.is_untouched_after(count)) << dtype_name(type) << " " << width;
      }
    }
  }
}

TEST(RmsNorm, GradientsAreThoseOfSmallDifferences) {
  constexpr int64_t kWidth = 37;
  Array x(DType::kF32, kWidth), gain(DType::kF32, kWidth), dy(DType::kF32, kWidth), y(DType::kF32, kWidth),
      dx(DType::kF32, kWidth);
  fill(x, kWidth, 4), fill(gain, kWidth, 5), fill(dy, kWidth, 6);
  float r = 0;
  std::vector<float> dgain(kWidth, 0);
  const auto weighted = [&] {
    rms_norm({DType::kF32, 1, kWidth}, x.data(), gain.data(), 1e-5f, y.data(), &r);
    double all = 0;
    for (int64_t i = 0; i < kWidth; ++i) all += static_cast<double>(y.at(i)) * dy.at(i);
    return all;
  };
  weighted();
  rms_norm_backward({DType::kF32, 1, kWidth}, dy.data(), x.data(), gain.data(), &r, dx.data(), dgain.data());
  const auto slope = [&](Array& array, int64_t i) {
    constexpr float kStep = 1e-2f;
    const float before = array.at(i);
    array.set(i, before + kStep);
    const double above = weighted();
    array.set(i, before - kStep);
    const double below = weighted();
    array.set(i, before);
    return (above - below) / (2 * kStep);
  };
  for (int64_t i = 0; i < kWidth; ++i) {
    EXPECT_NEAR(slope(x, i), dx.at(i), 2e-3);
    EXPECT_NEAR(slope(gain, i), dgain[static_cast<size_t>(i)], 2e-3);
  }
}

TEST(RmsNorm, RefusesOtherTypes) {
  double x = 0;
  float r = 0;
  EXPECT_THROW(rms_norm({DType::kF64, 1, 1}, &x, &x, 1e-5f, &x, &r), Error);
  EXPECT_THROW(rms_norm_backward({DType::kF64, 1, 1}, &x, &x, &x, &r, &x, &r), Error);
}

}  // namespace
}  // namespace herd::kernels
