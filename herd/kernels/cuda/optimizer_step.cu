#include <algorithm>

#include "herd/kernels/adamw_scalars_internal.h"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr int kMaxRanges = 64;  // of a launch

// The fp32 weights that a step works on (StepMemory).
enum class WeightsKind { kPlain, kSplit, kBf16Copy, kFp16Copy };

// What a launch steps: StepMemory with the ranges in its own memory, which is passed by value.
struct StepPart {
  void* weights;
  uint16_t* low;
  float* master;
  const void* gradient;
  void* moment1;
  float* moment2;
  const float* factor;
  int64_t count, offset;
  DType gradient_type;
  bool aligned;
  int num_ranges;
  ElementRange ranges[kMaxRanges];
};

struct SgdScalars {
  float decay, momentum, rate;
  bool nesterov;
};

__device__ void step_element(const AdamWScalars& s, bool decayed, float g, float& w, float& m, float& v) {
  m = m * s.beta1 + g * s.one_minus_beta1;
  v = v * s.beta2 + g * g * s.one_minus_beta2;
  const float denominator = sqrtf(v) / s.correction2 + s.epsilon;
  w = w * (decayed ? s.keep : 1.0f) - s.step_size * (m / denominator);
}
// The moment is where `has_moment`; there is no second one.
__device__ void step_element(const SgdScalars& s, bool decayed, bool has_moment, float g, float& w, float& m) {
  g = g + w * (decayed ? s.decay : 0.0f);
  float direction = g;
  if (has_moment) {
    m = m * s.momentum + g;
    direction = s.nesterov ? g + m * s.momentum : m;
  }
  w = w - s.rate * direction;
}

// Splits as split_float_kernel.h says.
__device__ void split(float exact, uint16_t& high, uint16_t& low) {
  uint32_t bits = __float_as_uint(exact);
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = (bits | 0x400000u) & 0xffff0000u;
  high = static_cast<uint16_t>((bits + 0x8000u) >> 16);
  low = static_cast<uint16_t>(bits);
}
__device__ float join(uint16_t high, uint16_t low) {
  return __uint_as_float((static_cast<uint32_t>(high) << 16) + static_cast<uint32_t>(static_cast<int16_t>(low)));
}

// Returns a bit for each of the eight elements from `first` of the flat tensor on that is in a range.
__device__ uint32_t decayed_bits(const StepPart& part, int64_t first) {
  int low = 0, high = part.num_ranges;  // the first range that ends after `first`
  while (low < high) {
    const int middle = (low + high) / 2;
    if (part.ranges[middle].end > first)
      high = middle;
    else
      low = middle + 1;
  }
  uint32_t bits = 0;
  for (int k = low; k < part.num_ranges && part.ranges[k].begin < first + kEight; ++k) {
    const int64_t begin = part.ranges[k].begin - first, end = part.ranges[k].end - first;
    const uint32_t below_end = end >= kEight ? 0xffu : (1u << end) - 1;
    bits |= begin <= 0 ? below_end : below_end & ~((1u << begin) - 1);
  }
  return bits;
}

template <WeightsKind kKind, typename Moment, typename Scalars>
__global__ void step_kernel(const __grid_constant__ StepPart part, const Scalars scalars) {
  const float factor = part.factor == nullptr ? 1.0f : *part.factor;
  if (factor < 0) return;
  int n;
  const int64_t i = my_eight(part.count, n);
  if (n == 0) return;
  const bool aligned = part.aligned;
  float w[kEight], g[kEight], m[kEight] = {}, v[kEight] = {};
  alignas(16) uint16_t halves[kEight], low[kEight];
  auto* const memory1 = static_cast<typename Moment::Element*>(part.moment1);
  if (memory1 != nullptr) load_eight<Moment>(memory1 + i, n, aligned, m);
  if (part.moment2 != nullptr) load_eight<Fp32>(static_cast<const float*>(part.moment2) + i, n, aligned, v);
  if constexpr (kKind == WeightsKind::kSplit) {
    load_raw(static_cast<const uint16_t*>(part.weights) + i, n, aligned, halves);
    load_raw(static_cast<const uint16_t*>(part.low) + i, n, aligned, low);
  } else if constexpr (kKind == WeightsKind::kPlain) {
    load_eight<Fp32>(static_cast<const float*>(part.weights) + i, n, aligned, w);
  } else {
    load_eight<Fp32>(static_cast<const float*>(part.master) + i, n, aligned, w);
  }
  if (part.gradient_type == DType::kF32)
    load_eight<Fp32>(static_cast<const float*>(part.gradient) + i, n, aligned, g);
  else if (part.gradient_type == DType::kBF16)
    load_eight<Bf16>(static_cast<const uint16_t*>(part.gradient) + i, n, aligned, g);
  else
    load_eight<Fp16>(static_cast<const uint16_t*>(part.gradient) + i, n, aligned, g);
  const uint32_t decayed = decayed_bits(part, part.offset + i);
#pragma unroll
  for (int k = 0; k < kEight; ++k) {
    if constexpr (kKind == WeightsKind::kSplit) w[k] = join(halves[k], low[k]);
    if constexpr (std::is_same_v<Scalars, AdamWScalars>) {
      step_element(scalars, decayed >> k & 1u, g[k] * factor, w[k], m[k], v[k]);
    } else {
      step_element(scalars, decayed >> k & 1u, memory1 != nullptr, g[k] * factor, w[k], m[k]);
    }
    if constexpr (kKind == WeightsKind::kSplit || kKind == WeightsKind::kBf16Copy) split(w[k], halves[k], low[k]);
    if constexpr (kKind == WeightsKind::kFp16Copy) halves[k] = Fp16::store(w[k]);
  }
  if (memory1 != nullptr) store_eight<Moment>(m, n, aligned, memory1 + i);
  if (part.moment2 != nullptr) store_eight<Fp32>(v, n, aligned, part.moment2 + i);
  if constexpr (kKind == WeightsKind::kPlain) store_eight<Fp32>(w, n, aligned, static_cast<float*>(part.weights) + i);
  if constexpr (kKind != WeightsKind::kPlain) store_raw(halves, n, aligned, static_cast<uint16_t*>(part.weights) + i);
  if constexpr (kKind == WeightsKind::kSplit) store_raw(low, n, aligned, part.low + i);
  if constexpr (kKind == WeightsKind::kBf16Copy || kKind == WeightsKind::kFp16Copy)
    store_eight<Fp32>(w, n, aligned, part.master + i);
}

template <WeightsKind kKind, typename Scalars>
void launch_part(const OnStream& on, DType moment1_type, const StepPart& part, const Scalars& scalars) {
  const unsigned blocks = blocks_of_eights(part.count);
  if (moment1_type == DType::kF32)
    step_kernel<kKind, Fp32><<<blocks, kThreads, 0, stream_of(on)>>>(part, scalars);
  else
    step_kernel<kKind, Bf16><<<blocks, kThreads, 0, stream_of(on)>>>(part, scalars);
}

void* moved(void* memory, int64_t elements, DType type) {
  return memory == nullptr ? nullptr : static_cast<char*>(memory) + elements * size_of(type);
}

// A launch has at most kMaxRanges ranges: where there are more, it ends where the last of its ranges does.
template <typename Scalars>
void step(const OnStream& on, const StepMemory& m, const Scalars& scalars) {
  const CurrentDevice current(on.device);
  size_t range = 0;
  for (int64_t begin = 0; begin < m.count;) {
    while (range < m.decay.size() && m.decay[range].end <= m.offset + begin) ++range;
    const size_t last = std::min(m.decay.size(), range + kMaxRanges);
    const bool is_rest = last == m.decay.size();
    const int64_t end = is_rest ? m.count : std::clamp<int64_t>(m.decay[last - 1].end - m.offset, begin, m.count);
    StepPart part{};
    part.weights = moved(m.weights, begin, m.weights_type);
    part.low = m.low == nullptr ? nullptr : m.low + begin;
    part.master = m.master == nullptr ? nullptr : m.master + begin;
    part.gradient = static_cast<const char*>(m.gradient) + begin * size_of(m.gradient_type);
    part.moment1 = moved(m.moment1, begin, m.moment1_type);
    part.moment2 = m.moment2 == nullptr ? nullptr : m.moment2 + begin;
    part.factor = m.factor;
    part.count = end - begin;
    part.offset = m.offset + begin;
    part.gradient_type = m.gradient_type;
    part.aligned = are_aligned(part.weights, part.low, part.master, part.gradient, part.moment1, part.moment2);
    part.num_ranges = static_cast<int>(last - range);
    std::copy(m.decay.begin() + static_cast<int64_t>(range), m.decay.begin() + static_cast<int64_t>(last), part.ranges);
    if (m.low != nullptr)
      launch_part<WeightsKind::kSplit>(on, m.moment1_type, part, scalars);
    else if (m.weights_type == DType::kF32)
      launch_part<WeightsKind::kPlain>(on, m.moment1_type, part, scalars);
    else if (m.weights_type == DType::kBF16)
      launch_part<WeightsKind::kBf16Copy>(on, m.moment1_type, part, scalars);
    else
      launch_part<WeightsKind::kFp16Copy>(on, m.moment1_type, part, scalars);
    check(cudaGetLastError(), "the optimizer's step");
    begin = end;
  }
}

__global__ void split_kernel(int64_t count, const float* exact, uint16_t* high, uint16_t* low, bool aligned) {
  int n;
  const int64_t i = my_eight(count, n);
  if (n == 0) return;
  float values[kEight];
  alignas(16) uint16_t upper[kEight], lower[kEight];
  load_eight<Fp32>(exact + i, n, aligned, values);
#pragma unroll
  for (int k = 0; k < kEight; ++k) split(values[k], upper[k], lower[k]);
  store_raw(upper, n, aligned, high + i);
  if (low != nullptr) store_raw(lower, n, aligned, low + i);
}

__global__ void join_kernel(int64_t count, const uint16_t* high, const uint16_t* low, float* exact, bool aligned) {
  int n;
  const int64_t i = my_eight(count, n);
  if (n == 0) return;
  alignas(16) uint16_t upper[kEight], lower[kEight];
  load_raw(high + i, n, aligned, upper);
  load_raw(low + i, n, aligned, lower);
  float values[kEight];
#pragma unroll
  for (int k = 0; k < kEight; ++k) values[k] = join(upper[k], lower[k]);
  store_eight<Fp32>(values, n, aligned, exact + i);
}

}  // namespace

void adamw(const OnStream& on, const AdamWCall& call) {
  step(on, call.memory, adamw_scalars(call.hyper));
}

void sgd(const OnStream& on, const SgdCall& call) {
  const SgdHyper& hyper = call.hyper;
  const SgdScalars s{static_cast<float>(hyper.weight_decay), static_cast<float>(hyper.momentum),
                     static_cast<float>(hyper.rate), hyper.nesterov};
  step(on, call.memory, s);
}

void split_float(const OnStream& on, const SplitFloatCall& call) {
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  split_kernel<<<blocks_of_eights(call.count), kThreads, 0, stream_of(on)>>>(
      call.count, call.exact, call.high, call.low, are_aligned(call.exact, call.high, call.low));
  check(cudaGetLastError(), "split_float");
}

void join_float(const OnStream& on, const JoinFloatCall& call) {
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  join_kernel<<<blocks_of_eights(call.count), kThreads, 0, stream_of(on)>>>(
      call.count, call.high, call.low, call.exact, are_aligned(call.exact, call.high, call.low));
  check(cudaGetLastError(), "join_float");
}

}  // namespace herd::kernels::cuda
