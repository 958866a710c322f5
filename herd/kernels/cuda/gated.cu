#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

__device__ float sigmoid(float value) { return 1.0f / (1.0f + expf(-value)); }

template <typename Type>
__global__ void gated_kernel(int64_t count, const typename Type::Element* gate, const typename Type::Element* up,
                             typename Type::Element* y, bool aligned) {
  int n;
  const int64_t i = my_eight(count, n);
  if (n == 0) return;
  float g[kEight], u[kEight];
  load_eight<Type>(gate + i, n, aligned, g);
  load_eight<Type>(up + i, n, aligned, u);
#pragma unroll
  for (int k = 0; k < kEight; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
  store_eight<Type>(g, n, aligned, y + i);
}

template <typename Type>
__global__ void gated_backward_kernel(int64_t count, const typename Type::Element* dy,
                                      const typename Type::Element* gate, const typename Type::Element* up,
                                      typename Type::Element* dgate, typename Type::Element* dup, bool aligned) {
  int n;
  const int64_t i = my_eight(count, n);
  if (n == 0) return;
  float d[kEight], g[kEight], u[kEight];
  load_eight<Type>(dy + i, n, aligned, d);
  load_eight<Type>(gate + i, n, aligned, g);
  load_eight<Type>(up + i, n, aligned, u);
#pragma unroll
  for (int k = 0; k < kEight; ++k) {
    const float s = sigmoid(g[k]), silu = g[k] * s;
    g[k] = d[k] * u[k] * (s * (1.0f + g[k] * (1.0f - s)));
    u[k] = d[k] * silu;
  }
  store_eight<Type>(g, n, aligned, dgate + i);
  store_eight<Type>(u, n, aligned, dup + i);
}

}  // namespace

void gated(const OnStream& on, const GatedCall& call) {
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  with_type(call.type, [&](auto type) {
    gated_kernel<decltype(type)><<<blocks_of_eights(call.count), kThreads, 0, stream_of(on)>>>(
        call.count, input(type, call.gate), input(type, call.up), output(type, call.y),
        are_aligned(call.gate, call.up, call.y));
  });
  check(cudaGetLastError(), "gated");
}

void gated_backward(const OnStream& on, const GatedBackwardCall& call) {
  if (call.count == 0) return;
  const CurrentDevice current(on.device);
  with_type(call.type, [&](auto type) {
    gated_backward_kernel<decltype(type)><<<blocks_of_eights(call.count), kThreads, 0, stream_of(on)>>>(
        call.count, input(type, call.dy), input(type, call.gate), input(type, call.up), output(type, call.dgate),
        output(type, call.dup), are_aligned(call.dy, call.gate, call.up, call.dgate, call.dup));
  });
  check(cudaGetLastError(), "gated_backward");
}

}  // namespace herd::kernels::cuda
