#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/element.cuh"

namespace herd::kernels::cuda {
namespace {

constexpr int kColumnThreads = 128;

// A block takes kColumnThreads eights of columns of one id's row, if its place is the first of that id.
template <typename Type, typename GradientType>
__global__ void embedding_gradient_kernel(int64_t count, int64_t width, int64_t rows, const int64_t* sorted_ids,
                                          const int64_t* order, const typename Type::Element* dy,
                                          typename GradientType::Element* gradient, bool overwrites, bool aligned) {
  const int64_t begin = blockIdx.x, id = sorted_ids[begin];
  if (id < 0 || id >= rows || (begin > 0 && sorted_ids[begin - 1] == id)) return;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kColumnThreads + threadIdx.x) * kEight;
  if (column >= width) return;
  const int n = static_cast<int>(width - column < kEight ? width - column : int64_t{kEight});
  typename GradientType::Element* const to = gradient + id * width + column;
  float sum[kEight] = {};
  if (!overwrites) load_eight<GradientType>(to, n, aligned, sum);
#pragma unroll 4
  for (int64_t place = begin; place < count && sorted_ids[place] == id; ++place) {
    float row[kEight];
    load_eight<Type>(dy + order[place] * width + column, n, aligned, row);
#pragma unroll
    for (int k = 0; k < kEight; ++k) sum[k] += row[k];
  }
  store_eight<GradientType>(sum, n, aligned, to);
}

}  // namespace

void embedding_gradient(const OnStream& on, const EmbeddingGradientCall& call) {
  if (call.count == 0 || call.width == 0) return;
  const CurrentDevice current(on.device);
  const bool aligned = call.width % kEight == 0 && are_aligned(call.dy, call.gradient);
  const dim3 blocks(static_cast<unsigned>(call.count),
                    static_cast<unsigned>(ceil_div(call.width, int64_t{kColumnThreads} * kEight)));
  with_type(call.type, [&](auto type) {
    with_type(call.gradient_type, [&](auto gradient_type) {
      embedding_gradient_kernel<decltype(type), decltype(gradient_type)><<<blocks, kColumnThreads, 0, stream_of(on)>>>(
          call.count, call.width, call.rows, call.sorted_ids, call.order, input(type, call.dy),
          output(gradient_type, call.gradient), call.overwrites, aligned);
    });
  });
  check(cudaGetLastError(), "embedding_gradient");
}

}  // namespace herd::kernels::cuda
