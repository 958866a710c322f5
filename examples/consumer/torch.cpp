// Uses herd with torch: a tensor becomes the buffer that a collective takes.
#include <ATen/ATen.h>

#include <cstdio>

#include "herd/bridge/tensor_buffer.h"

int main() {
  at::Tensor tensor = at::ones({2, 3});
  const herd::Buffer buffer = herd::to_buffer(tensor, herd::BufferTag{});
  std::printf("%lld elements of %s\n", static_cast<long long>(buffer.count), herd::dtype_name(buffer.dtype).data());
}
