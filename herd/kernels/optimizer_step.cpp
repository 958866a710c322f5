#include <algorithm>
#include <cstring>

#include "herd/kernels/adamw_kernel.h"
#include "herd/kernels/adamw_scalars_internal.h"
#include "herd/kernels/decay_segments_internal.h"
#include "herd/kernels/sgd_kernel.h"
#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/optimizer_step.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
#include <hwy/highway.h>

#ifndef HERD_KERNELS_OPTIMIZER_STEP_SCALARS
#define HERD_KERNELS_OPTIMIZER_STEP_SCALARS
namespace herd::kernels {

struct ScaledAdamW : AdamWScalars {
  float factor;  // of the gradient
};
struct SgdScalars {
  float factor, decay, momentum, rate;
  bool nesterov;
};

}  // namespace herd::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

HWY_INLINE void adamw_vector(const ScaledAdamW& s, float* w, const float* gradient, float* m, float* v) {
  const Tag d;
  const auto g = hn::Mul(hn::LoadU(d, gradient), hn::Set(d, s.factor));
  const auto m_new = hn::Add(hn::Mul(hn::LoadU(d, m), hn::Set(d, s.beta1)), hn::Mul(g, hn::Set(d, s.one_minus_beta1)));
  const auto v_new =
      hn::Add(hn::Mul(hn::LoadU(d, v), hn::Set(d, s.beta2)), hn::Mul(hn::Mul(g, g), hn::Set(d, s.one_minus_beta2)));
  const auto denominator = hn::Add(hn::Div(hn::Sqrt(v_new), hn::Set(d, s.correction2)), hn::Set(d, s.epsilon));
  const auto kept = hn::Mul(hn::LoadU(d, w), hn::Set(d, s.keep));
  hn::StoreU(m_new, d, m);
  hn::StoreU(v_new, d, v);
  hn::StoreU(hn::Sub(kept, hn::Mul(hn::Set(d, s.step_size), hn::Div(m_new, denominator))), d, w);
}

HWY_INLINE void sgd_vector(const SgdScalars& s, float* w, const float* gradient, float* m) {
  const Tag d;
  const auto weights = hn::LoadU(d, w);
  const auto momentum = hn::Set(d, s.momentum);
  const auto g = hn::Add(hn::Mul(hn::LoadU(d, gradient), hn::Set(d, s.factor)), hn::Mul(weights, hn::Set(d, s.decay)));
  auto direction = g;
  if (m != nullptr) {
    const auto m_new = hn::Add(hn::Mul(hn::LoadU(d, m), momentum), g);
    hn::StoreU(m_new, d, m);
    direction = s.nesterov ? hn::Add(g, hn::Mul(m_new, momentum)) : m_new;
  }
  hn::StoreU(hn::Sub(weights, hn::Mul(hn::Set(d, s.rate), direction)), d, w);
}

// The last elements go through a padded copy and the same vector code, so a tail has the bits of the body.
struct Padded {
  Padded(const float* from, int64_t num) {
    if (from != nullptr) std::memcpy(values, from, static_cast<size_t>(num) * sizeof(float));
  }
  void copy_to(float* to, int64_t num) const {
    if (to != nullptr) std::memcpy(to, values, static_cast<size_t>(num) * sizeof(float));
  }
  float values[HWY_MAX_BYTES / sizeof(float)] = {};
};

void adamw_segment(const ScaledAdamW& s, const AdamWShard& x, int64_t begin, int64_t end) {
  const auto width = static_cast<int64_t>(hn::Lanes(Tag()));
  int64_t i = begin;
  for (; i + width <= end; i += width) adamw_vector(s, x.weights + i, x.gradient + i, x.moment1 + i, x.moment2 + i);
  if (i == end) return;
  Padded w(x.weights + i, end - i), g(x.gradient + i, end - i), m(x.moment1 + i, end - i), v(x.moment2 + i, end - i);
  adamw_vector(s, w.values, g.values, m.values, v.values);
  w.copy_to(x.weights + i, end - i), m.copy_to(x.moment1 + i, end - i), v.copy_to(x.moment2 + i, end - i);
}

void sgd_segment(const SgdScalars& s, const SgdShard& x, int64_t begin, int64_t end) {
  const auto width = static_cast<int64_t>(hn::Lanes(Tag()));
  const bool has_moment = x.moment != nullptr;
  int64_t i = begin;
  for (; i + width <= end; i += width)
    sgd_vector(s, x.weights + i, x.gradient + i, has_moment ? x.moment + i : nullptr);
  if (i == end) return;
  Padded w(x.weights + i, end - i), g(x.gradient + i, end - i), m(has_moment ? x.moment + i : nullptr, end - i);
  sgd_vector(s, w.values, g.values, has_moment ? m.values : nullptr);
  w.copy_to(x.weights + i, end - i), m.copy_to(has_moment ? x.moment + i : nullptr, end - i);
}

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "herd/base/check.h"

namespace herd::kernels {

HWY_EXPORT(adamw_segment);
HWY_EXPORT(sgd_segment);

void adamw(const AdamWShard& shard, const AdamWHyper& hyper, std::span<const ElementRange> decay, const float* factor) {
  HERD_CHECK_GE(hyper.t, 1);
  ScaledAdamW s{adamw_scalars(hyper), factor == nullptr ? 1.0f : *factor};
  const float keep = s.keep;
  for_decay_segments(shard.offset, shard.count, decay, [&](int64_t begin, int64_t end, bool decayed) {
    s.keep = decayed ? keep : 1.0f;
    HWY_DYNAMIC_DISPATCH(adamw_segment)(s, shard, begin, end);
  });
}

void sgd(const SgdShard& shard, const SgdHyper& hyper, std::span<const ElementRange> decay, const float* factor) {
  HERD_CHECK(shard.moment != nullptr || hyper.momentum == 0, "momentum needs memory for it");
  SgdScalars s{};
  s.factor = factor == nullptr ? 1.0f : *factor;
  s.momentum = static_cast<float>(hyper.momentum);
  s.rate = static_cast<float>(hyper.rate);
  s.nesterov = hyper.nesterov;
  for_decay_segments(shard.offset, shard.count, decay, [&](int64_t begin, int64_t end, bool decayed) {
    s.decay = decayed ? static_cast<float>(hyper.weight_decay) : 0.0f;
    HWY_DYNAMIC_DISPATCH(sgd_segment)(s, shard, begin, end);
  });
}

}  // namespace herd::kernels
#endif
