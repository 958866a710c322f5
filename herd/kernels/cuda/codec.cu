#include <string>
#include <type_traits>

#include "herd/base/error.h"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr int kWarps = kThreads / 32;  // of a thread block; each takes a block of elements that share a scale
constexpr int kMaxBlock = 1024;        // elements; a thread block keeps kWarps of them in shared memory

// Where an encoded array has what (codec.cpp): [amax of each block, fp32] [codes, block after block].
template <int kCodeBits>
struct Layout {
  static constexpr int kBits = kCodeBits;
  static constexpr int kLevels = kBits == 8 ? 127 : 7, kOffset = kBits == 8 ? 128 : 8;
  int64_t count;
  int block;
  __host__ __device__ int64_t num_blocks() const { return (count + block - 1) / block; }
  __device__ int size(int64_t b) const {
    const int64_t rest = count - b * block;
    return rest < block ? static_cast<int>(rest) : block;
  }
  __device__ const uint8_t* maximum(const uint8_t* encoded, int64_t b) const { return encoded + 4 * b; }
  __device__ const uint8_t* codes(const uint8_t* encoded, int64_t b) const {
    return encoded + 4 * num_blocks() + b * block * kBits / 8;
  }
};

// An array begins at any byte.
__device__ float load_float(const uint8_t* from) {
  if (reinterpret_cast<uintptr_t>(from) % sizeof(float) == 0) return *reinterpret_cast<const float*>(from);
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) bits |= static_cast<uint32_t>(from[k]) << (8 * k);
  return __uint_as_float(bits);
}

// Element i of block b of an array.
template <int kBits>
__device__ float decoded(const Layout<kBits>& layout, const uint8_t* encoded, int64_t b, int i) {
  const uint8_t* const codes = layout.codes(encoded, b);
  int code;
  if constexpr (kBits == 8) {
    code = codes[i];
  } else {
    const int half = (layout.size(b) + 1) / 2;
    code = i < half ? codes[i] & 15 : codes[i - half] >> 4;
  }
  const float multiple = static_cast<float>(code - Layout<kBits>::kOffset) * (1.0f / Layout<kBits>::kLevels);
  return multiple * load_float(layout.maximum(encoded, b));
}

// The terms of a sum: arrays that begin `bytes` apart.
struct Terms {
  const uint8_t* encoded;
  int64_t count, bytes;
};

template <int kBits>
__device__ float sum_of_terms(const Layout<kBits>& layout, const Terms& terms, int64_t b, int i, float first) {
  float sum = first;
  for (int64_t term = 0; term < terms.count; ++term) sum += decoded(layout, terms.encoded + term * terms.bytes, b, i);
  return sum;
}

template <int kBits, typename Type>
__global__ void decode_sum_kernel(Layout<kBits> layout, Terms terms, bool adds, typename Type::Element* sums) {
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (b >= layout.num_blocks()) return;
  const float zero = terms.count == 1 ? -0.0f : 0.0f;  // one array is decoded as it is, with the sign of a zero
  auto* const to = sums + b * layout.block;
  for (int i = threadIdx.x % 32; i < layout.size(b); i += 32)
    to[i] = Type::store(sum_of_terms(layout, terms, b, i, adds ? Type::load(to[i]) : zero));
}

// What is encoded: numbers of a type, or sums of terms.
template <typename Type>
struct Numbers {
  const typename Type::Element* values;
  template <int kBits>
  __device__ float operator()(const Layout<kBits>& layout, int64_t b, int i) const {
    return Type::load(values[b * layout.block + i]);
  }
};
struct Sums {
  Terms terms;
  template <int kBits>
  __device__ float operator()(const Layout<kBits>& layout, int64_t b, int i) const {
    return sum_of_terms(layout, terms, b, i, 0.0f);
  }
};

// Adding 1.5 * 2^23 rounds to an integer, ties to even, in the lower bits.
template <int kBits>
__device__ uint32_t code_of(float value, float amax) {
  using Codec = Layout<kBits>;
  if (!(amax > 0)) return Codec::kOffset;  // all zeros, or a number that is not finite: 0 / 0 has no defined code
  constexpr float kMagic = 12582912.0f;
  const float shifted = value / amax * static_cast<float>(Codec::kLevels) + kMagic;
  return static_cast<uint32_t>(__float_as_int(shifted) - __float_as_int(kMagic) + Codec::kOffset);
}

template <int kBits, typename Input>
__global__ void encode_kernel(Layout<kBits> layout, Input input, uint8_t* encoded) {
  extern __shared__ float shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t b = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (b >= layout.num_blocks()) return;
  float* const values = shared + warp * layout.block;
  const int size = layout.size(b);
  int largest = 0;  // bit pattern of a magnitude, which orders patterns as magnitudes and NaN above all
  for (int i = lane; i < size; i += 32) {
    values[i] = input(layout, b, i);
    const int magnitude = __float_as_int(values[i]) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    const int other = __shfl_xor_sync(0xffffffffu, largest, half);
    largest = other > largest ? other : largest;
  }
  const float amax = __int_as_float(largest >= 0x7f800000 ? 0x7fc00000 : largest);
  auto* const maximum = const_cast<uint8_t*>(layout.maximum(encoded, b));
  if (lane < 4) maximum[lane] = static_cast<uint8_t>(__float_as_uint(amax) >> (8 * lane));
  __syncwarp();
  auto* const codes = const_cast<uint8_t*>(layout.codes(encoded, b));
  const int num_bytes = kBits == 8 ? size : (size + 1) / 2;
  for (int i = lane; i < num_bytes; i += 32) {
    uint32_t code = code_of<kBits>(values[i], amax);
    if constexpr (kBits == 4) code |= code_of<4>(num_bytes + i < size ? values[num_bytes + i] : 0.0f, amax) << 4;
    codes[i] = static_cast<uint8_t>(code);
  }
}

// Calls work(layout) for int8 or int4 by multiples.
template <typename Work>
void with_layout(const CodecSettings& codec, int64_t count, const Work& work) {
  const bool is_int8 = codec.kind == CodecKind::kInt8;
  if ((!is_int8 && codec.kind != CodecKind::kInt4) || codec.block < 1 || codec.block > kMaxBlock || codec.block % 2 != 0)
    throw Error(Code::kBug, "a codec that has no kernels: " + std::string(codec_row(codec.kind).name) +
                                " in blocks of " + std::to_string(codec.block) + "\n  fix: report this");
  if (count == 0) return;
  const int block = static_cast<int>(codec.block);
  is_int8 ? work(Layout<8>{count, block}) : work(Layout<4>{count, block});
}

template <int kBits>
unsigned thread_blocks(const Layout<kBits>& layout) {
  return static_cast<unsigned>(ceil_div(layout.num_blocks(), kWarps));
}

template <int kBits, typename Input>
void launch_encode(const OnStream& on, const Layout<kBits>& layout, const Input& input, std::byte* encoded) {
  const size_t shared = sizeof(float) * kWarps * static_cast<size_t>(layout.block);
  encode_kernel<kBits><<<thread_blocks(layout), kThreads, shared, stream_of(on)>>>(layout, input,
                                                                                    reinterpret_cast<uint8_t*>(encoded));
}

Terms terms_of(const std::byte* encoded, int64_t count, int64_t bytes) {
  return {reinterpret_cast<const uint8_t*>(encoded), count, bytes};
}

}  // namespace

void encode(const OnStream& on, const EncodeCall& call) {
  const CurrentDevice current(on.device);
  with_layout(call.codec, call.count, [&](const auto& layout) {
    with_type(call.type, [&](auto type) {
      launch_encode(on, layout, Numbers<decltype(type)>{input(type, call.values)}, call.encoded);
    });
  });
  check(cudaGetLastError(), "encode");
}

void decode_sum(const OnStream& on, const DecodeSumCall& call) {
  const CurrentDevice current(on.device);
  const Terms terms = terms_of(call.encoded, call.num_terms, encoded_bytes(call.codec, call.count));
  with_layout(call.codec, call.count, [&](const auto& layout) {
    with_type(call.type, [&](auto type) {
      decode_sum_kernel<std::decay_t<decltype(layout)>::kBits, decltype(type)>
          <<<thread_blocks(layout), kThreads, 0, stream_of(on)>>>(layout, terms, call.adds, output(type, call.sums));
    });
  });
  check(cudaGetLastError(), "decode_sum");
}

void encode_sum(const OnStream& on, const EncodeSumCall& call) {
  const CurrentDevice current(on.device);
  const Sums sums{terms_of(call.encoded, call.num_terms, call.term_bytes)};
  with_layout(call.codec, call.count,
              [&](const auto& layout) { launch_encode(on, layout, sums, call.sum); });
  check(cudaGetLastError(), "encode_sum");
}

}  // namespace herd::kernels::cuda
