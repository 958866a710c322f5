#include "herd/kernels/reduce_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "herd/base/error.h"
#include "herd/kernels/half.h"

namespace herd::kernels {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

double widen(Bf16 x) { return float_from_bf16(x.bits); }
double widen(Fp16 x) { return float_from_fp16(x.bits); }
template <typename T>
T widen(T x) {
  return x;
}

template <typename T>
constexpr bool kHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, Fp16>;

template <typename T>
T narrow(float x) {
  if constexpr (std::is_same_v<T, Bf16>) return {bf16_from_float(x)};
  if constexpr (std::is_same_v<T, Fp16>) return {fp16_from_float(x)};
}

// One element, by the rules of the header, in plain scalar code.
template <typename T>
T expected(const std::vector<T>& inputs, ReduceOp op, double scale) {
  if constexpr (kHalf<T> || std::is_floating_point_v<T>) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Wide value = static_cast<Wide>(widen(inputs[0]));
    for (size_t k = 1; k < inputs.size(); ++k) {
      const Wide next = static_cast<Wide>(widen(inputs[k]));
      if (op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kPremultipliedSum) value += next;
      if (op == ReduceOp::kProduct) value *= next;
      if (op == ReduceOp::kMin && !std::isnan(value) && (std::isnan(next) || next < value)) value = next;
      if (op == ReduceOp::kMax && !std::isnan(value) && (std::isnan(next) || next > value)) value = next;
    }
    value *= static_cast<Wide>(scale);
    if constexpr (kHalf<T>)
      return narrow<T>(static_cast<float>(value));
    else
      return value;
  } else {
    uint64_t sum = 0, product = 1;
    T least = inputs[0], most = inputs[0];
    for (T x : inputs) {
      sum += static_cast<uint64_t>(x);
      product *= static_cast<uint64_t>(x);
      least = std::min(least, x);
      most = std::max(most, x);
    }
    if (op == ReduceOp::kSum) return static_cast<T>(sum);
    if (op == ReduceOp::kProduct) return static_cast<T>(product);
    T both = inputs[0], either = inputs[0], odd = inputs[0];
    for (size_t k = 1; k < inputs.size(); ++k) {
      both = static_cast<T>(both & inputs[k]);
      either = static_cast<T>(either | inputs[k]);
      odd = static_cast<T>(odd ^ inputs[k]);
    }
    if (op == ReduceOp::kAnd) return both;
    if (op == ReduceOp::kOr) return either;
    if (op == ReduceOp::kXor) return odd;
    return op == ReduceOp::kMin ? least : most;
  }
}

// Exactly sized allocations at an odd element, so that a sanitizer sees any access outside.
template <typename T>
struct Odd {
  explicit Odd(int64_t count, int64_t shift)
      : memory(new T[static_cast<size_t>(count + shift)]), data(memory.get() + shift) {}
  std::unique_ptr<T[]> memory;
  T* data;
};

template <typename T>
T random_value(std::mt19937& random, DType dtype) {
  const auto word = static_cast<uint32_t>(random());
  if (dtype == DType::kBool) {
    T truth;
    const unsigned char byte = word & 1u;
    std::memcpy(&truth, &byte, 1);
    return truth;
  }
  if constexpr (kHalf<T>) return {static_cast<uint16_t>(word)};  // every pattern: NaN, infinities, subnormals
  if constexpr (std::is_floating_point_v<T>) {
    if (word % 31 == 0) return std::numeric_limits<T>::quiet_NaN();
    return static_cast<T>(static_cast<int32_t>(word)) / static_cast<T>(1 << 20);
  } else if constexpr (!kHalf<T>) {
    return static_cast<T>(word * 2654435761u ^ static_cast<uint64_t>(word) << 32);
  }
}

template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T> || kHalf<T>) {
    if (std::isnan(widen(a)) && std::isnan(widen(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

constexpr WriteKind kStores[] = {WriteKind::kCached, WriteKind::kStream, WriteKind::kTakeOver};

template <typename T>
void check_against_scalar_code(DType dtype) {
  std::mt19937 random(7);
  const int64_t counts[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 129, 257, 1000};
  for (ReduceOp op : kReduceOps) {
    if (!supports(op, dtype)) continue;
    for (int num_sources = 1; num_sources <= 9; ++num_sources) {
      for (int64_t count : counts) {
        const WriteKind store = kStores[random() % std::size(kStores)];
        const int num_targets = 1 + static_cast<int>(random() % 3);
        const double scale = is_floating(dtype) && op == ReduceOp::kAverage ? 1.0 / num_sources : 1.0;
        const bool in_place = random() % 2;
        std::vector<Odd<T>> sources, targets;
        std::vector<const void*> in;
        std::vector<void*> out;
        for (int k = 0; k < num_sources; ++k) {
          sources.emplace_back(count, static_cast<int64_t>(random() % 4));
          for (int64_t i = 0; i < count; ++i) sources.back().data[i] = random_value<T>(random, dtype);
          in.push_back(sources.back().data);
        }
        for (int k = 0; k < num_targets; ++k) {
          targets.emplace_back(count, static_cast<int64_t>(random() % 4));
          out.push_back(targets.back().data);
        }
        if (in_place) out.back() = sources[random() % sources.size()].data;
        std::vector<T> want;
        for (int64_t i = 0; i < count; ++i) {
          std::vector<T> inputs;
          for (const auto& source : sources) inputs.push_back(source.data[i]);
          want.push_back(expected(inputs, op, scale));
        }
        reduce(out, in, count, dtype, op, scale, store);
        for (void* target : out) {
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_TRUE(same(static_cast<T*>(target)[i], want[static_cast<size_t>(i)]))
                << dtype_name(dtype) << " " << reduce_op_name(op) << " of " << num_sources << " sources, element " << i
                << " of " << count;
          }
        }
      }
    }
  }
}

TEST(Reduce, EqualsScalarCodeBitForBit_Fp32) { check_against_scalar_code<float>(DType::kF32); }
TEST(Reduce, EqualsScalarCodeBitForBit_Fp64) { check_against_scalar_code<double>(DType::kF64); }
TEST(Reduce, EqualsScalarCodeBitForBit_Fp16) { check_against_scalar_code<Fp16>(DType::kF16); }
TEST(Reduce, EqualsScalarCodeBitForBit_Bf16) { check_against_scalar_code<Bf16>(DType::kBF16); }
TEST(Reduce, EqualsScalarCodeBitForBit_Int8) { check_against_scalar_code<int8_t>(DType::kI8); }
TEST(Reduce, EqualsScalarCodeBitForBit_Uint8) { check_against_scalar_code<uint8_t>(DType::kU8); }
TEST(Reduce, EqualsScalarCodeBitForBit_Int32) { check_against_scalar_code<int32_t>(DType::kI32); }
TEST(Reduce, EqualsScalarCodeBitForBit_Int64) { check_against_scalar_code<int64_t>(DType::kI64); }
TEST(Reduce, EqualsScalarCodeBitForBit_Int16) { check_against_scalar_code<int16_t>(DType::kI16); }
TEST(Reduce, EqualsScalarCodeBitForBit_Uint16) { check_against_scalar_code<uint16_t>(DType::kU16); }
TEST(Reduce, EqualsScalarCodeBitForBit_Uint32) { check_against_scalar_code<uint32_t>(DType::kU32); }
TEST(Reduce, EqualsScalarCodeBitForBit_Uint64) { check_against_scalar_code<uint64_t>(DType::kU64); }
TEST(Reduce, EqualsScalarCodeBitForBit_Bool) { check_against_scalar_code<uint8_t>(DType::kBool); }

TEST(Reduce, FillsTargetsThatBeginApartInLines_BlockByBlock) {
  constexpr int kElements = 10000;
  std::vector<float> a(kElements), b(kElements);
  for (int i = 0; i < kElements; ++i) a[static_cast<size_t>(i)] = static_cast<float>(i), b[static_cast<size_t>(i)] = 3;
  for (WriteKind store : kStores) {
    std::vector<float> first(kElements + 1), second(kElements + 2);
    void* const targets[] = {first.data() + 1, second.data() + 2};
    const void* const sources[] = {a.data(), b.data()};
    reduce(targets, sources, kElements, DType::kF32, ReduceOp::kAverage, 0.5, store);
    for (int i = 0; i < kElements; ++i) {
      ASSERT_EQ(static_cast<float*>(targets[0])[i], (static_cast<float>(i) + 3) / 2) << i;
      ASSERT_EQ(static_cast<float*>(targets[1])[i], (static_cast<float>(i) + 3) / 2) << i;
    }
  }
}

TEST(Reduce, AddsInSourceOrder) {
  // 1e8 + 1 - 1e8 is 0 in fp32; any other order gives 1.
  const float a = 1e8f, b = 1.0f, c = -1e8f;
  float sum = -1;
  void* const target = &sum;
  const void* const sources[] = {&a, &b, &c};
  reduce(std::span(&target, 1), sources, 1, DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(sum, 0.0f);
}

TEST(Reduce, RoundsSixteenBitSumsOnce) {
  // 1 + 2^-8 + 2^-8 in bf16 (8 bits): rounding after each addition would stay at 1.
  const uint16_t one = bf16_from_float(1.0f), tiny = bf16_from_float(0x1p-8f);
  uint16_t sum = 0;
  void* const target = &sum;
  const void* const sources[] = {&one, &tiny, &tiny};
  reduce(std::span(&target, 1), sources, 1, DType::kBF16, ReduceOp::kSum);
  EXPECT_EQ(float_from_bf16(sum), 1.0f + 0x1p-7f);
}

TEST(Reduce, RefusesAverageOfIntegers) {
  int32_t x = 1;
  void* const target = &x;
  const void* const source = &x;
  try {
    reduce(std::span(&target, 1), std::span(&source, 1), 1, DType::kI32, ReduceOp::kAverage);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
  }
}

TEST(Reduce, UsesTheWidestInstructionsOfThisMachine) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    EXPECT_STREQ(simd_target(), "AVX3");
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    EXPECT_STREQ(simd_target(), "AVX2");
  }
#endif
}

}  // namespace
}  // namespace herd::kernels
