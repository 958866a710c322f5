#include "herd/cli/bench_pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "herd/kernels/half.h"

namespace herd::cli {
namespace {

constexpr int64_t kPeriod = 251;            // elements after which the values repeat; a prime
constexpr int64_t kStretch = 16 * kPeriod;  // elements copied or compared at a time

int64_t phase(int64_t element, Rank rank, int repetition) { return (element + 37 * rank + 11 * repetition) % kPeriod; }

// Returns one period of pseudo-random values from 0 to 3.
const std::array<uint8_t, kPeriod>& values() {
  static const auto kValues = [] {
    std::array<uint8_t, kPeriod> all{};
    uint32_t state = 12345;
    for (uint8_t& value : all) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<uint8_t>(state >> 24 & 3u);
    }
    return all;
  }();
  return kValues;
}

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void write(std::byte* to, DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return put(to, static_cast<float>(value));
    case DType::kF64:
      return put(to, value);
    case DType::kF16:
      return put(to, kernels::fp16_from_float(static_cast<float>(value)));
    case DType::kBF16:
      return put(to, kernels::bf16_from_float(static_cast<float>(value)));
    case DType::kI8:
      return put(to, static_cast<int8_t>(value));
    case DType::kU8:
      return put(to, static_cast<uint8_t>(value));
    case DType::kI32:
      return put(to, static_cast<int32_t>(value));
    case DType::kI64:
      return put(to, static_cast<int64_t>(value));
    case DType::kBool:
      return put(to, static_cast<uint8_t>(value > 1 ? 1 : 0));
    case DType::kI16:
      return put(to, static_cast<int16_t>(value));
    case DType::kU16:
      return put(to, static_cast<uint16_t>(value));
    case DType::kU32:
      return put(to, static_cast<uint32_t>(value));
    case DType::kU64:
      return put(to, static_cast<uint64_t>(value));
  }
}

// Returns a rank's input where the period holds `value`: 1 or 2 for products, so that they stay exact.
int input_value(ReduceOp op, int value) { return op == ReduceOp::kProduct ? 1 + (value & 1) : value; }

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kPremultipliedSum:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kAnd:
      return static_cast<int>(a) & static_cast<int>(b);
    case ReduceOp::kOr:
      return static_cast<int>(a) | static_cast<int>(b);
    case ReduceOp::kXor:
      return static_cast<int>(a) ^ static_cast<int>(b);
  }
  return 0;
}

// Returns the average for a sum, rounded as the kernels of dtype scale it.
double average(double sum, int num_ranks, DType dtype) {
  if (num_ranks == 1) return sum;
  if (dtype == DType::kF64) return sum * (1.0 / num_ranks);
  return static_cast<float>(sum) * static_cast<float>(1.0 / num_ranks);
}

// Tells which numbers a dtype holds exactly: every integer from 0 to `integer`, and 2^e for e up to `exponent`.
struct ExactRange {
  int64_t integer = 0;
  int exponent = 0;
};

ExactRange exact_range(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return {127, 6};
    case DType::kU8:
      return {255, 7};
    case DType::kBF16:
      return {256, 127};
    case DType::kF16:
      return {2048, 15};
    case DType::kF32:
      return {1 << 24, 127};
    case DType::kF64:
      return {int64_t{1} << 53, 1023};
    case DType::kI32:
      return {std::numeric_limits<int32_t>::max(), 30};
    case DType::kU32:
      return {std::numeric_limits<uint32_t>::max(), 31};
    case DType::kI16:
      return {32767, 14};
    case DType::kU16:
      return {65535, 15};
    default:
      return {int64_t{1} << 53, 62};
  }
}

}  // namespace

BenchPattern::BenchPattern(DType dtype, ReduceOp op, int num_ranks) : dtype_(dtype), op_(op), num_ranks_(num_ranks) {
  const int64_t size = size_of(dtype);
  inputs_.resize(static_cast<size_t>((kPeriod + kStretch) * size));
  results_.resize(inputs_.size());
  for (int64_t i = 0; i < kPeriod + kStretch; ++i) {
    write(inputs_.data() + i * size, dtype, input_value(op, values()[static_cast<size_t>(i % kPeriod)]));
  }
}

int BenchPattern::max_ranks(ReduceOp op, DType dtype) {
  constexpr int kAny = std::numeric_limits<int>::max();
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return static_cast<int>(std::min<int64_t>(kAny, exact_range(dtype).integer / 3));
    case ReduceOp::kPremultipliedSum:
      return static_cast<int>(std::min<int64_t>(kAny, exact_range(dtype).integer / 6));
    case ReduceOp::kProduct:
      return exact_range(dtype).exponent;
    default:
      return kAny;
  }
}

double BenchPattern::factor(ReduceOp op, Rank rank) { return op == ReduceOp::kPremultipliedSum ? 1 + rank % 2 : 1; }

void BenchPattern::fill(std::byte* to, int64_t first, int64_t count, Rank rank, int repetition) const {
  const int64_t size = size_of(dtype_);
  const std::byte* from = inputs_.data() + phase(first, rank, repetition) * size;
  for (int64_t done = 0; done < count; done += kStretch) {
    std::memcpy(to + done * size, from, static_cast<size_t>(std::min(kStretch, count - done) * size));
  }
}

int64_t BenchPattern::wrong_input(const std::byte* at, int64_t first, int64_t count, Rank rank, int repetition) const {
  return differing(at, inputs_, phase(first, rank, repetition), count);
}

int64_t BenchPattern::wrong_result(const std::byte* at, int64_t first, int64_t count, int repetition) {
  const int64_t size = size_of(dtype_);
  if (results_of_ != repetition) {
    results_of_ = repetition;
    for (int64_t i = 0; i < kPeriod + kStretch; ++i) {
      const auto input_of = [&](Rank rank) {
        return factor(op_, rank) * input_value(op_, values()[static_cast<size_t>(phase(i, rank, repetition))]);
      };
      double result = input_of(0);
      for (Rank rank = 1; rank < num_ranks_; ++rank) result = combine(op_, result, input_of(rank));
      if (op_ == ReduceOp::kAverage) result = average(result, num_ranks_, dtype_);
      write(results_.data() + i * size, dtype_, result);
    }
  }
  return differing(at, results_, first % kPeriod, count);
}

int64_t BenchPattern::differing(const std::byte* at, const std::vector<std::byte>& block, int64_t start,
                                int64_t count) const {
  const int64_t size = size_of(dtype_);
  const std::byte* expected = block.data() + start * size;
  int64_t wrong = 0;
  for (int64_t done = 0; done < count; done += kStretch) {
    const int64_t num_elements = std::min(kStretch, count - done);
    const std::byte* found = at + done * size;
    if (std::memcmp(found, expected, static_cast<size_t>(num_elements * size)) == 0) continue;
    for (int64_t i = 0; i < num_elements; ++i) {
      if (std::memcmp(found + i * size, expected + i * size, static_cast<size_t>(size)) != 0) ++wrong;
    }
  }
  return wrong;
}

}  // namespace herd::cli
