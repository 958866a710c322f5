#include "herd/nn/initial_weights.h"

#include <ATen/Parallel.h>

#include <array>
#include <cmath>
#include <numbers>

#include "herd/nn/philox.h"

namespace herd::nn {
namespace {

std::array<float, 4> four_normals(PhiloxKey key, uint64_t counter) {
  const PhiloxCounter words = philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
  std::array<float, 4> out;
  for (int pair = 0; pair < 2; ++pair) {
    const float u = (static_cast<float>(words[2 * pair] >> 8) + 1.0f) * 0x1p-24f;
    const float v = static_cast<float>(words[2 * pair + 1] >> 8) * 0x1p-24f;
    const float radius = std::sqrt(-2.0f * std::log(u));
    const float angle = 2.0f * std::numbers::pi_v<float> * v;
    out[2 * pair] = radius * std::cos(angle);
    out[2 * pair + 1] = radius * std::sin(angle);
  }
  return out;
}

void write_normal(const ParameterSpec& spec, uint64_t seed, int64_t begin, float* out, int64_t count) {
  const PhiloxKey key = philox_key(mix(seed, hash_name(spec.name)));
  const float scale = static_cast<float>(spec.standard_deviation);
  const int64_t first = begin / 4, last = (begin + count + 3) / 4;
  at::parallel_for(first, last, 1 << 14, [&](int64_t from, int64_t to) {
    for (int64_t four = from; four < to; ++four) {
      const std::array<float, 4> values = four_normals(key, static_cast<uint64_t>(four));
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t at = four * 4 + i - begin;
        if (at >= 0 && at < count) out[at] = scale * values[i];
      }
    }
  });
}

}  // namespace

void write_initial_weights(const ParameterSpec& spec, uint64_t seed, int64_t begin, const at::Tensor& out) {
  if (spec.init != Init::kNormal) {
    out.fill_(spec.init == Init::kOnes ? 1.0 : 0.0);
  } else if (out.scalar_type() == at::kFloat && out.is_cpu()) {
    write_normal(spec, seed, begin, out.mutable_data_ptr<float>(), out.numel());
  } else {
    at::Tensor values = at::empty({out.numel()}, at::kFloat);
    write_normal(spec, seed, begin, values.mutable_data_ptr<float>(), values.numel());
    out.copy_(values);
  }
}

}  // namespace herd::nn
