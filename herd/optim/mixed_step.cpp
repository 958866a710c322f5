#include "herd/optim/mixed_step.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace herd::optim {

constexpr int64_t kElements = 1 << 14;  // of a piece: 64 KiB of each fp32 array

void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options) {
  const int64_t count = shard.weights.numel();
  const at::Tensor scratch = at::empty({std::min(kElements, count)}, at::kFloat);
  for (int64_t begin = 0; begin < count; begin += kElements) {
    const int64_t size = std::min(kElements, count - begin);
    const auto piece = [&](const at::Tensor& flat) { return flat.narrow(0, begin, size); };
    Shard part{piece(shard.full.weights), scratch.narrow(0, 0, size), {}, shard.full.offset + begin, shard.full.decay};
    part.gradient.copy_(piece(shard.gradient));
    for (const at::Tensor& state : shard.full.states) part.states.push_back(piece(state));
    optimizer.step(part, options);
    piece(shard.weights).copy_(part.weights);
  }
}

}  // namespace herd::optim
