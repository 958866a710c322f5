#include "herd/cli/bench_pattern.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "herd/kernels/half.h"

namespace herd::cli {
namespace {

constexpr int64_t kPeriod = 251;
constexpr int64_t kStretch = 16 * kPeriod;  // elements copied or compared at a time

int64_t phase(int64_t element, Rank rank, int repetition) { return (element + 37 * rank + 11 * repetition) % kPeriod; }

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

void write(std::byte* to, DType dtype, int value) {
  switch (dtype) {
    case DType::kF32:
      return put(to, static_cast<float>(value));
    case DType::kF64:
      return put(to, static_cast<double>(value));
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
  }
}

int meet(ReduceOp op, int a, int b) {
  if (op == ReduceOp::kSum) return a + b;
  return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
}

}  // namespace

BenchPattern::BenchPattern(DType dtype, ReduceOp op, int num_ranks) : dtype_(dtype), op_(op), num_ranks_(num_ranks) {
  const int64_t size = size_of(dtype);
  inputs_.resize(static_cast<size_t>((kPeriod + kStretch) * size));
  results_.resize(inputs_.size());
  for (int64_t i = 0; i < kPeriod + kStretch; ++i) {
    write(inputs_.data() + i * size, dtype, values()[static_cast<size_t>(i % kPeriod)]);
  }
}

int BenchPattern::max_ranks(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return 127 / 3;
    case DType::kU8:
      return 255 / 3;
    case DType::kBF16:  // whole numbers up to 2^8
      return 256 / 3;
    case DType::kF16:  // up to 2^11
      return 2048 / 3;
    default:
      return std::numeric_limits<int>::max();
  }
}

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
      int result = values()[static_cast<size_t>(phase(i, 0, repetition))];
      for (Rank rank = 1; rank < num_ranks_; ++rank) {
        result = meet(op_, result, values()[static_cast<size_t>(phase(i, rank, repetition))]);
      }
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
    const int64_t here = std::min(kStretch, count - done);
    const std::byte* found = at + done * size;
    if (std::memcmp(found, expected, static_cast<size_t>(here * size)) == 0) continue;
    for (int64_t i = 0; i < here; ++i) {
      if (std::memcmp(found + i * size, expected + i * size, static_cast<size_t>(size)) != 0) ++wrong;
    }
  }
  return wrong;
}

}  // namespace herd::cli
