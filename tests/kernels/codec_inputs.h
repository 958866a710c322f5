// Gives the arrays on which codecs are tested: of each kind that gradients come as, and of each that breaks arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "herd/kernels/philox_stream.h"

namespace herd::kernels {

inline std::vector<float> normal_values(int64_t count, uint32_t seed = 1) {
  std::vector<float> values(static_cast<size_t>(4 * ((count + 3) / 4)));
  philox_normals({.key = {seed, 2}}, 0, (count + 3) / 4, 1.0f, values.data());
  values.resize(static_cast<size_t>(count));
  return values;
}

// Returns cubes of normal deviates: a few are large, most are tiny, as in gradients.
inline std::vector<float> heavy_tailed(int64_t count, uint32_t seed = 1) {
  std::vector<float> values = normal_values(count, seed);
  for (float& x : values) x = x * x * x;
  return values;
}

struct CodecInput {
  std::string name;
  std::vector<float> values;
};

inline std::vector<CodecInput> codec_inputs(int64_t count) {
  const auto size = static_cast<size_t>(count);
  const auto scaled = [&](float factor) {
    std::vector<float> values = normal_values(count, 3);
    for (float& x : values) x *= factor;
    return values;
  };
  std::vector<CodecInput> inputs = {{"normal", normal_values(count)},
                                    {"heavy-tailed", heavy_tailed(count)},
                                    {"large", scaled(1e37f)},
                                    {"constant", std::vector<float>(size, -0.3f)},
                                    {"zero", std::vector<float>(size, 0.0f)},
                                    {"denormal", scaled(1e-40f)},
                                    {"smallest", std::vector<float>(size, std::numeric_limits<float>::denorm_min())}};
  std::vector<float> mixed = scaled(1e-40f);
  for (size_t i = 0; i < size; i += 7) mixed[i] = 1e20f;
  inputs.push_back({"of all sizes", mixed});
  std::vector<float> one = heavy_tailed(count);
  if (!one.empty()) one.back() = 1e10f;
  inputs.push_back({"one outlier", one});
  return inputs;
}

}  // namespace herd::kernels
