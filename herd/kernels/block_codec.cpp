#include "herd/kernels/block_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/block_codec.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;
constexpr size_t kMaxFloats = HWY_MAX_BYTES / sizeof(float);

int64_t float_lanes() { return static_cast<int64_t>(hn::Lanes(FloatTag())); }

// Returns the bit pattern of the largest magnitude, which orders patterns as magnitudes and NaN above all.
int32_t largest_magnitude(const float* values, int64_t count) {
  const FloatTag d;
  const IntTag bits;
  const auto magnitude = hn::Set(bits, 0x7fffffff);
  const int64_t width = float_lanes();
  auto largest = hn::Zero(bits);
  int64_t i = 0;
  for (; i + width <= count; i += width)
    largest = hn::Max(largest, hn::And(hn::BitCast(bits, hn::LoadU(d, values + i)), magnitude));
  int32_t lanes[kMaxFloats];
  hn::StoreU(largest, bits, lanes);
  int32_t result = 0;
  for (int64_t k = 0; k < width; ++k) result = std::max(result, lanes[k]);
  for (; i < count; ++i) {
    int32_t pattern;
    std::memcpy(&pattern, values + i, sizeof(pattern));
    result = std::max(result, pattern & 0x7fffffff);
  }
  return result;
}

// Returns round(x / amax * levels) as integers. Adding 1.5 * 2^23 rounds to an integer in the lower bits.
template <class V>
HWY_INLINE auto rounded_multiples(V x, V amax, V levels) {
  const FloatTag d;
  const IntTag bits;
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::Add(hn::Mul(hn::Div(x, amax), levels), magic);
  return hn::Sub(hn::BitCast(bits, shifted), hn::BitCast(bits, magic));
}

HWY_INLINE auto load_bytes(const uint8_t* codes) { return hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), codes)); }

template <class V>
HWY_INLINE void store_bytes(V words, uint8_t* codes) {
  hn::StoreU(hn::DemoteTo(ByteTag(), words), ByteTag(), codes);
}

// int8 is stored as q + 128, so that bytes are unsigned in both codecs.
HWY_INLINE void encode_int8_vector(const float* values, float amax, uint8_t* codes) {
  const FloatTag d;
  const auto q = rounded_multiples(hn::LoadU(d, values), hn::Set(d, amax), hn::Set(d, 127.0f));
  store_bytes(hn::Add(q, hn::Set(IntTag(), 128)), codes);
}

HWY_INLINE void encode_int4_vector(const float* low, const float* high, float amax, uint8_t* codes) {
  const FloatTag d;
  const IntTag bits;
  const auto scale = hn::Set(d, amax), levels = hn::Set(d, 7.0f);
  const auto eight = hn::Set(bits, 8);
  const auto lower = hn::Add(rounded_multiples(hn::LoadU(d, low), scale, levels), eight);
  const auto upper = hn::Add(rounded_multiples(hn::LoadU(d, high), scale, levels), eight);
  store_bytes(hn::Or(lower, hn::ShiftLeft<4>(upper)), codes);
}

// Writes the numbers of a vector.
struct WriteNumbers {
  template <class V>
  HWY_INLINE void operator()(V x, float* values) const {
    hn::StoreU(x, FloatTag(), values);
  }
};

// Adds factor times the numbers of a vector.
struct AddNumbers {
  float factor;
  template <class V>
  HWY_INLINE void operator()(V x, float* values) const {
    const FloatTag d;
    hn::StoreU(hn::Add(hn::LoadU(d, values), hn::Mul(x, hn::Set(d, factor))), d, values);
  }
};

template <class V>
HWY_INLINE auto multiples(V q, float step, float amax) {
  const FloatTag d;
  return hn::Mul(hn::Mul(hn::ConvertTo(d, q), hn::Set(d, step)), hn::Set(d, amax));
}

template <class Take>
HWY_INLINE void decode_int8_vector(const uint8_t* codes, float amax, const Take& take, float* values) {
  take(multiples(hn::Sub(load_bytes(codes), hn::Set(IntTag(), 128)), 1.0f / 127, amax), values);
}

template <class Take>
HWY_INLINE void decode_int4_vector(const uint8_t* codes, float amax, const Take& take, float* low, float* high) {
  const IntTag bits;
  const auto both = load_bytes(codes), eight = hn::Set(bits, 8);
  take(multiples(hn::Sub(hn::And(both, hn::Set(bits, 15)), eight), 1.0f / 7, amax), low);
  take(multiples(hn::Sub(hn::ShiftRight<4>(both), eight), 1.0f / 7, amax), high);
}

// In all four, the last elements go through padded copies and the same vector code.
void encode_all_int8(const float* values, int64_t count, float amax, uint8_t* codes) {
  const int64_t width = float_lanes();
  int64_t i = 0;
  for (; i + width <= count; i += width) encode_int8_vector(values + i, amax, codes + i);
  if (i == count) return;
  float from[kMaxFloats] = {};
  uint8_t to[kMaxFloats];
  std::memcpy(from, values + i, static_cast<size_t>(count - i) * sizeof(float));
  encode_int8_vector(from, amax, to);
  std::memcpy(codes + i, to, static_cast<size_t>(count - i));
}

void encode_all_int4(const float* values, int64_t count, float amax, uint8_t* codes) {
  const int64_t width = float_lanes(), half = (count + 1) / 2;
  int64_t i = 0;
  for (; half + i + width <= count; i += width) encode_int4_vector(values + i, values + half + i, amax, codes + i);
  for (; i < half; i += width) {
    float low[kMaxFloats] = {}, high[kMaxFloats] = {};
    uint8_t to[kMaxFloats];
    const int64_t lows = std::min(width, half - i), highs = std::clamp<int64_t>(count - half - i, 0, width);
    std::memcpy(low, values + i, static_cast<size_t>(lows) * sizeof(float));
    std::memcpy(high, values + half + i, static_cast<size_t>(highs) * sizeof(float));
    encode_int4_vector(low, high, amax, to);
    std::memcpy(codes + i, to, static_cast<size_t>(lows));
  }
}

template <class Take>
HWY_INLINE void decode_all_int8(const uint8_t* codes, int64_t count, float amax, const Take& take, float* values) {
  const int64_t width = float_lanes();
  int64_t i = 0;
  for (; i + width <= count; i += width) decode_int8_vector(codes + i, amax, take, values + i);
  if (i == count) return;
  uint8_t from[kMaxFloats] = {};
  float to[kMaxFloats] = {};
  std::memcpy(from, codes + i, static_cast<size_t>(count - i));
  std::memcpy(to, values + i, static_cast<size_t>(count - i) * sizeof(float));
  decode_int8_vector(from, amax, take, to);
  std::memcpy(values + i, to, static_cast<size_t>(count - i) * sizeof(float));
}

template <class Take>
HWY_INLINE void decode_all_int4(const uint8_t* codes, int64_t count, float amax, const Take& take, float* values) {
  const int64_t width = float_lanes(), half = (count + 1) / 2;
  int64_t i = 0;
  for (; half + i + width <= count; i += width)
    decode_int4_vector(codes + i, amax, take, values + i, values + half + i);
  for (; i < half; i += width) {
    uint8_t from[kMaxFloats] = {};
    float low[kMaxFloats] = {}, high[kMaxFloats] = {};
    const int64_t lows = std::min(width, half - i), highs = std::clamp<int64_t>(count - half - i, 0, width);
    std::memcpy(from, codes + i, static_cast<size_t>(lows));
    std::memcpy(low, values + i, static_cast<size_t>(lows) * sizeof(float));
    std::memcpy(high, values + half + i, static_cast<size_t>(highs) * sizeof(float));
    decode_int4_vector(from, amax, take, low, high);
    std::memcpy(values + i, low, static_cast<size_t>(lows) * sizeof(float));
    std::memcpy(values + half + i, high, static_cast<size_t>(highs) * sizeof(float));
  }
}

void write_int8(const uint8_t* codes, int64_t count, float amax, float* values) {
  decode_all_int8(codes, count, amax, WriteNumbers(), values);
}
void write_int4(const uint8_t* codes, int64_t count, float amax, float* values) {
  decode_all_int4(codes, count, amax, WriteNumbers(), values);
}
void add_int8(const uint8_t* codes, int64_t count, float amax, float factor, float* values) {
  decode_all_int8(codes, count, amax, AddNumbers{factor}, values);
}
void add_int4(const uint8_t* codes, int64_t count, float amax, float factor, float* values) {
  decode_all_int4(codes, count, amax, AddNumbers{factor}, values);
}

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace herd::kernels {

HWY_EXPORT(largest_magnitude);
HWY_EXPORT(encode_all_int8);
HWY_EXPORT(encode_all_int4);
HWY_EXPORT(write_int8);
HWY_EXPORT(write_int4);
HWY_EXPORT(add_int8);
HWY_EXPORT(add_int4);

namespace {

// A block without a scale holds the code of 0 throughout, whatever its values: 0 / 0 has no defined code.
bool has_scale(float amax) { return amax > 0; }

}  // namespace

void block_maxima(const float* values, int64_t count, int64_t block, float* maxima) {
  for (int64_t begin = 0; begin < count; begin += block) {
    const int32_t pattern = HWY_DYNAMIC_DISPATCH(largest_magnitude)(values + begin, std::min(block, count - begin));
    *maxima++ = pattern >= 0x7f800000 ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(pattern);
  }
}

void encode_block_int8(const float* values, int64_t count, float amax, uint8_t* codes) {
  if (has_scale(amax))
    HWY_DYNAMIC_DISPATCH(encode_all_int8)(values, count, amax, codes);
  else
    std::fill_n(codes, count, uint8_t{128});
}

void encode_block_int4(const float* values, int64_t count, float amax, uint8_t* codes) {
  if (has_scale(amax))
    HWY_DYNAMIC_DISPATCH(encode_all_int4)(values, count, amax, codes);
  else
    std::fill_n(codes, (count + 1) / 2, uint8_t{0x88});
}

void decode_block_int8(const uint8_t* codes, int64_t count, float amax, float* values) {
  HWY_DYNAMIC_DISPATCH(write_int8)(codes, count, amax, values);
}

void decode_block_int4(const uint8_t* codes, int64_t count, float amax, float* values) {
  HWY_DYNAMIC_DISPATCH(write_int4)(codes, count, amax, values);
}

void add_block_int8(const uint8_t* codes, int64_t count, float amax, float factor, float* values) {
  HWY_DYNAMIC_DISPATCH(add_int8)(codes, count, amax, factor, values);
}

void add_block_int4(const uint8_t* codes, int64_t count, float amax, float factor, float* values) {
  HWY_DYNAMIC_DISPATCH(add_int4)(codes, count, amax, factor, values);
}

}  // namespace herd::kernels
#endif
