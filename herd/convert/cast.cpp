#include "herd/convert/cast.h"

#include <cmath>
#include <cstring>

#include "herd/base/check.h"
#include "herd/kernels/half.h"

namespace herd::convert {
namespace {

template <float (*Convert)(uint16_t)>
void widen(std::span<const std::byte> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, from.data() + 2 * i, sizeof bits);
    to[i] = Convert(bits);
  }
}

// Returns the index of the first finite number that is not finite in 16 bits, or -1.
template <uint16_t (*Convert)(float), float (*Back)(uint16_t)>
int64_t narrow(std::span<const float> from, std::span<std::byte> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const uint16_t bits = Convert(from[i]);
    if (std::isfinite(from[i]) && !std::isfinite(Back(bits))) return static_cast<int64_t>(i);
    std::memcpy(to.data() + 2 * i, &bits, sizeof bits);
  }
  return -1;
}

}  // namespace

bool is_weight_type(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16; }

void to_float(DType dtype, std::span<const std::byte> from, std::span<float> to) {
  HERD_CHECK(is_weight_type(dtype), "a type of weights");
  HERD_CHECK_EQ(static_cast<int64_t>(from.size()), static_cast<int64_t>(to.size()) * size_of(dtype));
  if (dtype == DType::kBF16) return widen<kernels::float_from_bf16>(from, to);
  if (dtype == DType::kF16) return widen<kernels::float_from_fp16>(from, to);
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

int64_t from_float(std::span<const float> from, DType dtype, std::span<std::byte> to) {
  HERD_CHECK(is_weight_type(dtype), "a type of weights");
  HERD_CHECK_EQ(static_cast<int64_t>(to.size()), static_cast<int64_t>(from.size()) * size_of(dtype));
  if (dtype == DType::kBF16) return narrow<kernels::bf16_from_float, kernels::float_from_bf16>(from, to);
  if (dtype == DType::kF16) return narrow<kernels::fp16_from_float, kernels::float_from_fp16>(from, to);
  if (!from.empty()) std::memcpy(to.data(), from.data(), to.size());
  return -1;
}

}  // namespace herd::convert
