#include "herd/kernels/philox_stream.h"

#include <algorithm>
#include <cstring>
#include <numbers>

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/philox_stream.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<uint32_t>;
using Vec = hn::Vec<Tag>;
using FloatTag = hn::ScalableTag<float>;
using Float = hn::Vec<FloatTag>;

// Holds the four words of each counter.
struct Words {
  Vec a, b, c, d;
};

// Computes both halves of the 64-bit product of each lane and the factor.
HWY_INLINE void multiply(Vec x, uint32_t factor, Vec& high, Vec& low) {
  const Tag d;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(x)} * factor;
  high = hn::Set(d, static_cast<uint32_t>(product >> 32));
  low = hn::Set(d, static_cast<uint32_t>(product));
#else
  const hn::RepartitionToWide<Tag> wide;
  const auto even = hn::MulEven(x, hn::Set(d, factor));
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), hn::Set(d, factor));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

HWY_INLINE Words draw(const PhiloxStream& stream, uint64_t first) {
  const Tag d;
  const auto begin = hn::Set(d, static_cast<uint32_t>(first));
  Words w{hn::Add(begin, hn::Iota(d, 0)), hn::Set(d, static_cast<uint32_t>(first >> 32)), hn::Set(d, stream.word2),
          hn::Set(d, stream.word3)};
  w.b = hn::Sub(w.b, hn::VecFromMask(d, hn::Lt(w.a, begin)));  // a true lane of the mask is -1, so this adds the carry
  auto key0 = stream.key[0], key1 = stream.key[1];
  for (int round = 0; round < 10; ++round) {
    Vec high0, low0, high1, low1;
    multiply(w.a, 0xD2511F53, high0, low0);
    multiply(w.c, 0xCD9E8D57, high1, low1);
    w = {hn::Xor(hn::Xor(high1, w.b), hn::Set(d, key0)), low1, hn::Xor(hn::Xor(high0, w.d), hn::Set(d, key1)), low0};
    key0 += 0x9E3779B9, key1 += 0xBB67AE85;
  }
  return w;
}

// ln of u in (0, 1], normal: u = 2^e m with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), |s| < 0.172:
// ln m = 2 s (1 + s^2/3 + s^4/5 + s^6/7 + s^8/9), cut at a relative 2e-9.
HWY_INLINE Float natural_log(Float u) {
  const FloatTag f;
  const hn::RebindToSigned<FloatTag> i;
  const auto half_root = hn::Set(i, 0x3F3504F3);  // sqrt(1/2) as bits
  const auto shifted = hn::Sub(hn::BitCast(i, u), half_root);
  const auto exponent = hn::ShiftRight<23>(shifted);
  const auto m = hn::BitCast(f, hn::Add(hn::And(shifted, hn::Set(i, 0x007FFFFF)), half_root));
  const auto one = hn::Set(f, 1.0f);
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), s2 = hn::Mul(s, s);
  auto sum = hn::Set(f, 1.0f / 9);
  for (const float term : {1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f}) sum = hn::Add(hn::Mul(sum, s2), hn::Set(f, term));
  return hn::Add(hn::Mul(hn::ConvertTo(f, exponent), hn::Set(f, std::numbers::ln2_v<float>)),
                 hn::Mul(hn::Add(s, s), sum));
}

// Computes radius * cos and radius * sin of 2 pi * (word >> 8) / 2^24. The quarter turn is exact. The rest, an angle of
// at most pi/4, goes through Taylor series that are cut at 2e-9.
HWY_INLINE void turn(Vec word, Float radius, Float& x, Float& y) {
  const Tag d;
  const FloatTag f;
  const hn::RebindToSigned<FloatTag> i;
  const auto parts = hn::ShiftRight<8>(word);
  const auto quarter = hn::ShiftRight<22>(hn::Add(parts, hn::Set(d, 1u << 21)));
  const auto rest = hn::ConvertTo(f, hn::BitCast(i, hn::Sub(parts, hn::ShiftLeft<22>(quarter))));
  const auto angle = hn::Mul(rest, hn::Set(f, 2 * std::numbers::pi_v<float> * 0x1p-24f)), a2 = hn::Mul(angle, angle);
  auto sine = hn::Set(f, 1.0f / 362880), cosine = hn::Set(f, -1.0f / 3628800);
  for (const float term : {-1.0f / 5040, 1.0f / 120, -1.0f / 6, 1.0f})
    sine = hn::Add(hn::Mul(sine, a2), hn::Set(f, term));
  for (const float term : {1.0f / 40320, -1.0f / 720, 1.0f / 24, -1.0f / 2, 1.0f})
    cosine = hn::Add(hn::Mul(cosine, a2), hn::Set(f, term));
  sine = hn::Mul(sine, angle);
  const auto odd = hn::MaskFromVec(hn::BitCast(f, hn::Sub(hn::Zero(d), hn::And(quarter, hn::Set(d, 1)))));
  const auto sign_x = hn::ShiftLeft<30>(hn::And(hn::Add(quarter, hn::Set(d, 1)), hn::Set(d, 2)));
  const auto sign_y = hn::ShiftLeft<30>(hn::And(quarter, hn::Set(d, 2)));
  x = hn::Mul(radius, hn::Xor(hn::IfThenElse(odd, sine, cosine), hn::BitCast(f, sign_x)));
  y = hn::Mul(radius, hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(f, sign_y)));
}

// Makes two normal numbers of two words by the method of Box and Muller.
HWY_INLINE void normal_pair(Vec a, Vec b, float scale, Float& x, Float& y) {
  const Tag d;
  const FloatTag f;
  const hn::RebindToSigned<FloatTag> i;
  const auto steps = hn::ConvertTo(f, hn::BitCast(i, hn::Add(hn::ShiftRight<8>(a), hn::Set(d, 1))));
  const auto square = hn::Mul(hn::Set(f, -2.0f), natural_log(hn::Mul(steps, hn::Set(f, 0x1p-24f))));
  turn(b, hn::Mul(hn::Set(f, scale), hn::Sqrt(square)), x, y);
}

// Calls write_vector(first counter, out) for each vector of counters; it writes 4 elements a counter. The last counters
// go through a copy.
template <typename T, typename WriteVector>
HWY_INLINE void for_vectors(uint64_t first, int64_t count, T* out, const WriteVector& write_vector) {
  const auto width = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t i = 0;
  for (; i + width <= count; i += width) write_vector(first + static_cast<uint64_t>(i), out + 4 * i);
  if (i == count) return;
  T last[4 * HWY_MAX_BYTES / sizeof(T)];
  write_vector(first + static_cast<uint64_t>(i), last);
  std::memcpy(out + 4 * i, last, static_cast<size_t>(4 * (count - i)) * sizeof(T));
}

void write_words(const PhiloxStream& stream, uint64_t first, int64_t count, uint32_t* out) {
  for_vectors(first, count, out, [&](uint64_t counter, uint32_t* to) {
    const Words w = draw(stream, counter);
    hn::StoreInterleaved4(w.a, w.b, w.c, w.d, Tag(), to);
  });
}

void write_normals(const PhiloxStream& stream, uint64_t first, int64_t count, float scale, float* out) {
  for_vectors(first, count, out, [&](uint64_t counter, float* to) {
    const Words w = draw(stream, counter);
    Float x0, y0, x1, y1;
    normal_pair(w.a, w.b, scale, x0, y0);
    normal_pair(w.c, w.d, scale, x1, y1);
    hn::StoreInterleaved4(x0, y0, x1, y1, FloatTag(), to);
  });
}

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace herd::kernels {

HWY_EXPORT(write_words);
HWY_EXPORT(write_normals);

void philox_words(const PhiloxStream& stream, uint64_t first, int64_t count, uint32_t* out) {
  HWY_DYNAMIC_DISPATCH(write_words)(stream, first, count, out);
}

void philox_normals(const PhiloxStream& stream, uint64_t first, int64_t count, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(write_normals)(stream, first, count, scale, out);
}

}  // namespace herd::kernels
#endif
