#include "herd/optim/mixed_step.h"

#include <algorithm>

#include "herd/base/check.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/kernels/half_array.h"
#include "herd/kernels/split_float_kernel.h"

namespace herd::optim {
namespace {

constexpr int64_t kPieceElements = 1 << 13;  // elements of a piece, 32 KiB of each fp32 array
constexpr size_t kMaxStates = 2;             // states of an optimizer at most

bool is_fp32(const at::Tensor& tensor) { return tensor.scalar_type() == at::kFloat; }

uint16_t* halves(const at::Tensor& tensor, int64_t begin) {
  return static_cast<uint16_t*>(tensor.mutable_data_ptr()) + begin;
}

// Returns elements [begin, begin + size) as fp32: in place where they are fp32, otherwise a copy in `scratch`.
float* widen(const at::Tensor& flat, int64_t begin, int64_t size, float* scratch) {
  if (is_fp32(flat)) return flat.mutable_data_ptr<float>() + begin;
  kernels::widen(dtype_of(flat.scalar_type()), halves(flat, begin), scratch, size);
  return scratch;
}
// Writes fp32 values back to elements [begin, begin + size) of a 16-bit tensor; fp32 ones were changed in place.
void narrow(const float* values, const at::Tensor& flat, int64_t begin, int64_t size) {
  if (!is_fp32(flat)) kernels::narrow(dtype_of(flat.scalar_type()), values, halves(flat, begin), size);
}

void step_on_device(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options) {
  const Shard& master = shard.master;
  const bool is_exact = !shard.weights.defined();  // fp32 weights, which are their own master
  const at::Tensor& weights = is_exact ? master.weights : shard.weights;
  const auto memory_of = [&](const at::Tensor& tensor) {
    HERD_CHECK(tensor.device() == weights.device() && tensor.is_contiguous() && tensor.numel() == weights.numel(),
               "what an optimizer steps must be contiguous, on one device");
    return tensor.mutable_data_ptr();
  };
  kernels::StepMemory memory{.weights_type = dtype_of(weights.scalar_type()),
                             .gradient_type = dtype_of(shard.gradient.scalar_type()),
                             .weights = memory_of(weights),
                             .gradient = memory_of(shard.gradient),
                             .count = weights.numel(),
                             .offset = master.offset,
                             .decay = {master.decay.begin(), master.decay.end()}};
  if (shard.low.defined()) memory.low = static_cast<uint16_t*>(memory_of(shard.low));
  if (!is_exact && !shard.low.defined()) memory.master = static_cast<float*>(memory_of(master.weights));
  const auto& states = master.states;
  if (!states.empty()) memory.moment1_type = dtype_of(states[0].scalar_type()), memory.moment1 = memory_of(states[0]);
  if (states.size() > 1) {
    HERD_CHECK(is_fp32(states[1]), "a second moment on a device is fp32");
    memory.moment2 = static_cast<float*>(memory_of(states[1]));
  }
  optimizer.step_on_device(kernels_of(weights), on_stream(weights), std::move(memory), options);
}

void check(const at::Tensor& tensor, int64_t count) {
  HERD_CHECK(tensor.defined() && tensor.is_cpu() && tensor.is_contiguous(),
             "what an optimizer steps must be contiguous, on the CPU");
  HERD_CHECK_EQ(tensor.numel(), count);
}

}  // namespace

void mixed_step(const Optimizer& optimizer, const MixedShard& shard, const StepOptions& options) {
  if (!shard.gradient.is_cpu()) return step_on_device(optimizer, shard, options);
  const auto& states = shard.master.states;
  if (is_fp32(shard.gradient) && std::all_of(states.begin(), states.end(), is_fp32) && !shard.weights.defined()) {
    Shard master = shard.master;
    master.gradient = shard.gradient;
    return optimizer.step(master, options);
  }
  const int64_t count = shard.gradient.numel();
  const bool split = shard.low.defined(), rounded = shard.weights.defined() && !split;
  HERD_CHECK_EQ(static_cast<int>(states.size()), optimizer.num_states());
  HERD_CHECK_LE(states.size(), kMaxStates);
  for (const at::Tensor& state : states) check(state, count);
  for (const at::Tensor& weights : {split || rounded ? shard.weights : shard.master.weights,
                                    split ? shard.low : shard.master.weights, shard.gradient})
    check(weights, count);
  // The scratch is on the stack, so that a step needs no memory of the device beside its values.
  alignas(64) float scratch[2 + kMaxStates][kPieceElements];
  uint16_t low[kPieceElements];
  float* moments[kMaxStates];
  for (int64_t begin = 0; begin < count; begin += kPieceElements) {
    const int64_t size = std::min(kPieceElements, count - begin);
    float* const weights = split ? scratch[0] : shard.master.weights.mutable_data_ptr<float>() + begin;
    if (split) kernels::join_float(halves(shard.weights, begin), halves(shard.low, begin), weights, size);
    const float* const gradient = widen(shard.gradient, begin, size, scratch[1]);
    for (size_t k = 0; k < states.size(); ++k) moments[k] = widen(states[k], begin, size, scratch[2 + k]);
    optimizer.step_raw(
        {weights, gradient, {moments, states.size()}, size, shard.master.offset + begin, shard.master.decay}, options);
    for (size_t k = 0; k < states.size(); ++k) narrow(moments[k], states[k], begin, size);
    if (split) kernels::split_float(weights, halves(shard.weights, begin), halves(shard.low, begin), size);
    if (rounded && shard.weights.scalar_type() == at::kBFloat16)  // rounds as where the lower halves are kept
      kernels::split_float(weights, halves(shard.weights, begin), low, size);
    else if (rounded)
      narrow(weights, shard.weights, begin, size);
  }
}

}  // namespace herd::optim
