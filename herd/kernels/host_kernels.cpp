#include "herd/kernels/host_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "herd/base/check.h"
#include "herd/kernels/finite.h"
#include "herd/kernels/half.h"
#include "herd/kernels/half_array.h"
#include "herd/kernels/hash.h"
#include "herd/kernels/philox_stream.h"
#include "herd/kernels/reduce_kernel.h"
#include "herd/kernels/rms_norm.h"
#include "herd/kernels/split_float_kernel.h"
#include "herd/kernels/sum_of_squares.h"

namespace herd::kernels {
namespace {

constexpr int64_t kScratchElements = 1 << 13;  // elements that are converted at a time; they stay in the cache

struct Fp32 {
  using Element = float;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};
struct Bf16 {
  using Element = uint16_t;
  static float load(uint16_t bits) { return float_from_bf16(bits); }
  static uint16_t store(float value) { return bf16_from_float(value); }
};
struct Fp16 {
  using Element = uint16_t;
  static float load(uint16_t bits) { return float_from_fp16(bits); }
  static uint16_t store(float value) { return fp16_from_float(value); }
};

// Calls work(Type()) for the type of the elements.
template <typename Work>
void with_type(DType type, const Work& work) {
  if (type == DType::kF32) return work(Fp32());
  if (type == DType::kBF16) return work(Bf16());
  HERD_CHECK(type == DType::kF16, "a kernel of " + std::string(dtype_name(type)));
  work(Fp16());
}

template <typename Type>
const typename Type::Element* input(Type, const void* memory) {
  return static_cast<const typename Type::Element*>(memory);
}
template <typename Type>
typename Type::Element* output(Type, void* memory) {
  return static_cast<typename Type::Element*>(memory);
}

const void* at_element(const void* memory, int64_t element, DType type) {
  return static_cast<const char*>(memory) + element * size_of(type);
}
void* at_element(void* memory, int64_t element, DType type) {
  return static_cast<char*>(memory) + element * size_of(type);
}

// Returns elements [begin, begin + count) as fp32: in place where they are fp32, otherwise a copy in `scratch`.
const float* widened(DType type, const void* memory, int64_t begin, int64_t count, float* scratch) {
  const void* from = at_element(memory, begin, type);
  if (type == DType::kF32) return static_cast<const float*>(from);
  widen(type, static_cast<const uint16_t*>(from), scratch, count);
  return scratch;
}
float* widened(DType type, void* memory, int64_t begin, int64_t count, float* scratch) {
  return const_cast<float*>(widened(type, static_cast<const void*>(memory), begin, count, scratch));
}
// Writes back what widened() gave; fp32 was changed in place.
void write_back(DType type, const float* values, void* memory, int64_t begin, int64_t count) {
  if (type != DType::kF32) narrow(type, values, static_cast<uint16_t*>(at_element(memory, begin, type)), count);
}

// Calls step(weights, gradient, moment1, moment2, begin, count) in fp32 for pieces of the memory.
template <typename Step>
void step_pieces(const StepMemory& m, const Step& step) {
  if (m.factor != nullptr && *m.factor < 0) return;
  alignas(64) float scratch[3][kScratchElements];
  uint16_t low[kScratchElements];
  for (int64_t begin = 0; begin < m.count; begin += kScratchElements) {
    const int64_t count = std::min(kScratchElements, m.count - begin);
    auto* const halves = static_cast<uint16_t*>(m.weights) + begin;
    float* weights = scratch[0];
    if (m.low != nullptr)
      join_float(halves, m.low + begin, weights, count);
    else
      weights = (m.weights_type == DType::kF32 ? static_cast<float*>(m.weights) : m.master) + begin;
    const float* gradient = widened(m.gradient_type, m.gradient, begin, count, scratch[1]);
    float* moment1 = nullptr;
    if (m.moment1 != nullptr) moment1 = widened(m.moment1_type, m.moment1, begin, count, scratch[2]);
    step(weights, gradient, moment1, m.moment2 == nullptr ? nullptr : m.moment2 + begin, begin, count);
    if (m.moment1 != nullptr) write_back(m.moment1_type, moment1, m.moment1, begin, count);
    if (m.low != nullptr)
      split_float(weights, halves, m.low + begin, count);
    else if (m.weights_type == DType::kBF16)
      split_float(weights, halves, low, count);
    else if (m.weights_type == DType::kF16)
      narrow(DType::kF16, weights, halves, count);
  }
}

float sigmoid(float value) { return 1.0f / (1.0f + std::exp(-value)); }

class HostKernels final : public DeviceKernels {
 public:
  void rms_norm(const OnStream&, const RmsNormCall& call) override {
    const void* x = call.x;
    if (call.residual != nullptr) {
      with_type(call.type, [&](auto type) {
        const auto *a = input(type, call.x), *b = input(type, call.residual);
        auto* sum = output(type, call.sum);
        for (int64_t i = 0; i < call.rows * call.width; ++i) sum[i] = type.store(type.load(a[i]) + type.load(b[i]));
      });
      x = call.sum;
    }
    kernels::rms_norm({call.type, call.rows, call.width}, x, call.gain, call.epsilon, call.y, call.r);
  }

  void rms_norm_backward(const OnStream&, const RmsNormBackwardCall& call) override {
    const int64_t width = call.width;
    // dx may lie where dsum or dy does, so each row is made apart.
    std::vector<float> row(static_cast<size_t>(width)), sums(static_cast<size_t>(width * call.num_parts));
    for (int64_t part = 0; part < call.num_parts; ++part) {
      for (int64_t r = call.rows * part / call.num_parts; r < call.rows * (part + 1) / call.num_parts; ++r) {
        const auto of_row = [&](const void* memory) { return at_element(memory, r * width, call.type); };
        kernels::rms_norm_backward({call.type, 1, width}, of_row(call.dy), of_row(call.x), call.gain, call.r + r,
                                   row.data(), sums.data() + part * width);
        void* dx = at_element(call.dx, r * width, call.type);
        with_type(call.type, [&](auto type) {
          const auto* direct = input(type, row.data());
          auto* to = output(type, dx);
          if (call.dsum == nullptr) {
            std::copy(direct, direct + width, to);
          } else {
            const auto* around = input(type, of_row(call.dsum));
            for (int64_t i = 0; i < width; ++i) to[i] = type.store(type.load(direct[i]) + type.load(around[i]));
          }
        });
      }
    }
    if (call.dgain == nullptr) return;
    std::copy(sums.begin(), sums.end(), call.parts);
    for (int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (int64_t part = 0; part < call.num_parts; ++part) sum += call.parts[part * width + i];
      call.dgain[i] = sum;
    }
  }

  void dropout(const OnStream&, const DropoutCall& call) override {
    if (call.y != call.x) std::memmove(call.y, call.x, static_cast<size_t>(call.count * size_of(call.type)));
    with_type(call.type, [&](auto type) {
      auto* y = output(type, call.y);
      for (const DropoutRange& range : call.ranges) {
        const PhiloxStream words{
            {static_cast<uint32_t>(range.key), static_cast<uint32_t>(range.key >> 32)}, call.layer, call.site};
        constexpr int64_t kCounters = 256;
        std::array<uint32_t, 4 * kCounters> drawn{};
        const int64_t end = range.first + range.count;
        for (int64_t counter = range.first / 4; 4 * counter < end; counter += kCounters) {
          philox_words(words, static_cast<uint64_t>(counter), kCounters, drawn.data());
          const int64_t to = std::min(end, 4 * (counter + kCounters));
          for (int64_t i = std::max(range.first, 4 * counter); i < to; ++i) {
            auto& value = y[range.at + i - range.first];
            const bool keeps = drawn[static_cast<size_t>(i - 4 * counter)] >= call.threshold;
            value = keeps ? type.store(type.load(value) * call.scale) : type.store(0.0f);
          }
        }
      }
    });
  }

  void adamw(const OnStream&, const AdamWCall& call) override {
    const StepMemory& m = call.memory;
    step_pieces(
        m, [&](float* weights, const float* gradient, float* moment1, float* moment2, int64_t begin, int64_t count) {
          kernels::adamw({weights, gradient, moment1, moment2, count, m.offset + begin}, call.hyper, m.decay, m.factor);
        });
  }

  void sgd(const OnStream&, const SgdCall& call) override {
    const StepMemory& m = call.memory;
    step_pieces(m, [&](float* weights, const float* gradient, float* moment, float*, int64_t begin, int64_t count) {
      kernels::sgd({weights, gradient, moment, count, m.offset + begin}, call.hyper, m.decay, m.factor);
    });
  }

  void sum_of_squares(const OnStream&, const SumOfSquaresCall& call) override {
    alignas(64) float scratch[kScratchElements];
    double sum = 0;
    for (int64_t begin = 0; begin < call.count; begin += kScratchElements) {
      const int64_t count = std::min(kScratchElements, call.count - begin);
      sum += kernels::sum_of_squares(widened(call.type, call.values, begin, count, scratch), count);
    }
    *call.sum += sum;
  }

  void clip(const OnStream&, const ClipCall& call) override {
    double sum = 0;
    for (int64_t i = 0; i < call.count; ++i) sum += call.sums[i];
    if (call.skips_overflow && !std::isfinite(sum)) {
      *call.norm = std::sqrt(sum);
      *call.factor = -1;
      return;
    }
    const double norm = std::sqrt(sum / (call.loss_scale * call.loss_scale));
    const bool clips = call.max_norm > 0 && std::isfinite(norm);
    const float factor = clips ? static_cast<float>(std::min(1.0, call.max_norm / (norm + 1e-6))) : 1.0f;
    *call.norm = norm;
    *call.factor = static_cast<float>(factor / call.loss_scale);
  }

  void first_non_finite(const OnStream&, const FirstNonFiniteCall& call) override {
    alignas(64) float scratch[kScratchElements];
    *call.index = -1;
    for (int64_t begin = 0; begin < call.count && *call.index < 0; begin += kScratchElements) {
      const int64_t count = std::min(kScratchElements, call.count - begin);
      const int64_t found = kernels::first_non_finite(widened(call.type, call.values, begin, count, scratch), count);
      if (found >= 0) *call.index = begin + found;
    }
  }

  void hash(const OnStream&, const HashCall& call) override {
    *call.result = kernels::hash(call.memory, call.bytes, call.seed);
  }

  void split_float(const OnStream&, const SplitFloatCall& call) override {
    uint16_t low[kScratchElements];
    for (int64_t begin = 0; begin < call.count; begin += kScratchElements) {
      kernels::split_float(call.exact + begin, call.high + begin, call.low == nullptr ? low : call.low + begin,
                           std::min(kScratchElements, call.count - begin));
    }
  }

  void join_float(const OnStream&, const JoinFloatCall& call) override {
    kernels::join_float(call.high, call.low, call.exact, call.count);
  }

  void reduce(const OnStream&, const ReductionCall& call) override {
    void* const targets[] = {call.target};
    kernels::reduce(targets, call.sources, call.count, call.type, call.op, call.scale);
  }

  void rotary(const OnStream&, const RotaryCall& call) override {
    const auto half = static_cast<int64_t>(call.frequencies.size());
    with_type(call.type, [&](auto type) {
      for (int64_t t = 0; t < call.tokens; ++t) {
        for (int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(call.first + t) * call.frequencies[static_cast<size_t>(i)];
          const float cosine = std::cos(angle), sine = call.sign * std::sin(angle);
          for (int64_t b = 0; b < call.batch; ++b) {
            auto* row = output(type, call.x) + b * call.batch_stride + t * call.token_stride;
            for (int64_t head = 0; head < call.heads; ++head) {
              auto &first = row[head * 2 * half + i], &second = row[head * 2 * half + half + i];
              const float a = type.load(first), c = type.load(second);
              first = type.store(a * cosine - c * sine);
              second = type.store(c * cosine + a * sine);
            }
          }
        }
      }
    });
  }

  void gated(const OnStream&, const GatedCall& call) override {
    with_type(call.type, [&](auto type) {
      const auto *gate = input(type, call.gate), *up = input(type, call.up);
      auto* y = output(type, call.y);
      for (int64_t i = 0; i < call.count; ++i) {
        const float g = type.load(gate[i]);
        y[i] = type.store(g * sigmoid(g) * type.load(up[i]));
      }
    });
  }

  void gated_backward(const OnStream&, const GatedBackwardCall& call) override {
    with_type(call.type, [&](auto type) {
      const auto *dy = input(type, call.dy), *gate = input(type, call.gate), *up = input(type, call.up);
      auto *dgate = output(type, call.dgate), *dup = output(type, call.dup);
      for (int64_t i = 0; i < call.count; ++i) {
        const float g = type.load(gate[i]), u = type.load(up[i]), d = type.load(dy[i]), s = sigmoid(g);
        dgate[i] = type.store(d * u * (s * (1.0f + g * (1.0f - s))));
        dup[i] = type.store(d * (g * s));
      }
    });
  }

  void cross_entropy(const OnStream&, const CrossEntropyCall& call) override {
    with_type(call.type, [&](auto type) {
      for (int64_t row = 0; row < call.rows; ++row) {
        auto* logits = output(type, call.logits) + row * call.words;
        const int64_t target = call.targets[row];
        const bool counts = target >= 0 && target < call.words;
        if (!counts) {
          if (call.with_gradients) std::fill(logits, logits + call.words, type.store(0.0f));
          continue;
        }
        float largest = type.load(logits[0]);
        for (int64_t j = 1; j < call.words; ++j) {
          const float value = type.load(logits[j]);
          if (value > largest || std::isnan(value)) largest = value;
        }
        double sum = 0;
        for (int64_t j = 0; j < call.words; ++j) sum += std::exp(type.load(logits[j]) - largest);
        *call.loss += static_cast<double>(largest) + std::log(sum) - static_cast<double>(type.load(logits[target]));
        ++*call.counted;
        if (!call.with_gradients) continue;
        const float scale = static_cast<float>(1 / sum);
        for (int64_t j = 0; j < call.words; ++j) {
          const float softmax = std::exp(type.load(logits[j]) - largest) * scale;
          logits[j] = type.store(call.weight * (softmax - (j == target ? 1.0f : 0.0f)));
        }
      }
    });
  }

  void embedding_gradient(const OnStream&, const EmbeddingGradientCall& call) override {
    with_type(call.type, [&](auto type) {
      with_type(call.gradient_type, [&](auto gradient_type) {
        const auto* dy = input(type, call.dy);
        std::vector<float> sum(static_cast<size_t>(call.width));
        for (int64_t begin = 0, end = 0; begin < call.count; begin = end) {
          const int64_t id = call.sorted_ids[begin];
          while (end < call.count && call.sorted_ids[end] == id) ++end;
          if (id < 0 || id >= call.rows) continue;
          auto* gradient = output(gradient_type, call.gradient) + id * call.width;
          for (int64_t i = 0; i < call.width; ++i)
            sum[static_cast<size_t>(i)] = call.overwrites ? 0.0f : gradient_type.load(gradient[i]);
          for (int64_t place = begin; place < end; ++place) {
            const auto* row = dy + call.order[place] * call.width;
            for (int64_t i = 0; i < call.width; ++i) sum[static_cast<size_t>(i)] += type.load(row[i]);
          }
          for (int64_t i = 0; i < call.width; ++i) gradient[i] = gradient_type.store(sum[static_cast<size_t>(i)]);
        }
      });
    });
  }

  void encode(const OnStream&, const EncodeCall& call) override {
    kernels::encode(call.codec, call.type, call.values, call.count, call.encoded);
  }

  void decode_sum(const OnStream&, const DecodeSumCall& call) override {
    if (call.num_terms == 1 && !call.adds)
      return kernels::decode(call.codec, call.type, call.encoded, call.count, call.sums);
    kernels::decode_sum(call.codec, call.type, call.encoded, call.num_terms, call.count, call.adds, call.sums);
  }

  void encode_sum(const OnStream&, const EncodeSumCall& call) override {
    kernels::encode_sum(call.codec, call.encoded, call.num_terms, call.term_bytes, call.count, call.sum);
  }
};

}  // namespace

DeviceKernels& host_kernels() {
  static HostKernels instance;
  return instance;
}

}  // namespace herd::kernels
