#include "herd/spec/activations.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

double sbh(const LayerShape& l) { return l.s * l.b * l.h; }

}  // namespace

double attention_activation_bytes(const LayerShape& l) { return 11 * sbh(l) + 5 * l.a * l.s * l.s * l.b; }
double mlp_activation_bytes(const LayerShape& l) { return 19 * sbh(l); }
double norm_activation_bytes(const LayerShape& l) { return 4 * sbh(l); }

double layer_activation_bytes(const LayerShape& l, int t, bool sequence_parallel, RecomputeKind recompute) {
  if (t < 1 || std::fmod(l.a, t) != 0) {
    throw Error(Code::kBadConfig, "tensor-parallel ranks must divide the heads: " + std::to_string(std::llround(l.a)) +
                                      " % " + std::to_string(t) + " != 0\n  fix: tp = 1");
  }
  if (recompute == RecomputeKind::kFull) return 2 * sbh(l);
  const double linear = sequence_parallel ? 34.0 / t : 10 + 24.0 / t;
  const double scores = recompute == RecomputeKind::kNone ? 5 * l.a * l.s / (l.h * t) : 0;
  return sbh(l) * (linear + scores);
}

double attention_core_activation_bytes(const LayerShape& l) { return 8 * sbh(l) + 5 * l.a * l.s * l.s * l.b; }

RecomputeSegments segments_every(int64_t layers, int64_t every) {
  if (every < 1) {
    throw Error(Code::kBadConfig,
                "recompute every K layers needs K >= 1, got " + std::to_string(every) + "\n  fix: every:1");
  }
  return {(layers + every - 1) / every, std::min(every, layers)};
}

int64_t sqrt_interval(int64_t layers) {
  return std::max<int64_t>(1, std::llround(std::sqrt(static_cast<double>(layers))));
}

}  // namespace herd::spec
