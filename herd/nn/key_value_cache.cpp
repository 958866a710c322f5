#include "herd/nn/key_value_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "herd/base/check.h"

namespace herd::nn {

KeyValueCache::KeyValueCache(int64_t bytes, c10::Device device)
    : key_bytes_(at::empty({bytes / 2}, at::TensorOptions(at::kByte).device(device))),
      value_bytes_(at::empty_like(key_bytes_)) {
  HERD_CHECK_EQ(bytes % 2, 0);
}

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(const at::Tensor& k, const at::Tensor& v, int64_t past) {
  const int64_t B = k.size(0), H = k.size(1), T = k.size(2), d = k.size(3), end = past + T;
  if (!keys_.defined()) {
    const int64_t token_bytes = B * H * d * static_cast<int64_t>(k.element_size());
    HERD_CHECK_EQ(key_bytes_.numel() % token_bytes, 0);
    const int64_t capacity = key_bytes_.numel() / token_bytes;
    keys_ = key_bytes_.view(k.scalar_type()).view({B, H, capacity, d});
    values_ = value_bytes_.view(v.scalar_type()).view({B, H, capacity, d});
  }
  HERD_CHECK_LE(end, keys_.size(2));
  keys_.narrow(2, past, T).copy_(k);
  values_.narrow(2, past, T).copy_(v);
  return {keys_.narrow(2, 0, end), values_.narrow(2, 0, end)};
}

}  // namespace herd::nn
