#include "herd/optim/mixed_step.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace herd::optim {
namespace {

constexpr int64_t kElements = 1 << 14;  // of a piece: 64 KiB of each fp32 array

bool is_full(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; }

}  // namespace

void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options) {
  const auto& states = shard.full.states;
  if (is_full(shard.gradient) && std::all_of(states.begin(), states.end(), is_full) && !shard.weights.defined()) {
    Shard full = shard.full;
    full.gradient = shard.gradient;
    return optimizer.step(full, options);
  }
  const int64_t count = shard.full.weights.numel();
  const at::Tensor scratch =
      at::empty({static_cast<int64_t>(1 + states.size()), std::min(kElements, count)}, at::kFloat);
  for (int64_t begin = 0; begin < count; begin += kElements) {
    const int64_t size = std::min(kElements, count - begin);
    const auto piece = [&](const at::Tensor& flat) { return flat.narrow(0, begin, size); };
    const auto in_full = [&](const at::Tensor& flat, size_t row) {
      return is_full(flat) ? piece(flat) : scratch[static_cast<int64_t>(row)].narrow(0, 0, size).copy_(piece(flat));
    };
    Shard part{piece(shard.full.weights), in_full(shard.gradient, 0), {}, shard.full.offset + begin, shard.full.decay};
    for (size_t k = 0; k < states.size(); ++k) part.states.push_back(in_full(states[k], 1 + k));
    optimizer.step(part, options);
    for (size_t k = 0; k < states.size(); ++k)
      if (!is_full(states[k])) piece(states[k]).copy_(part.states[k]);
    if (shard.weights.defined()) piece(shard.weights).copy_(part.weights);
  }
}

}  // namespace herd::optim
