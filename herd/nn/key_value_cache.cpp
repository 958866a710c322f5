#include "herd/nn/key_value_cache.h"

#include "herd/base/check.h"

namespace herd::nn {

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(int layer, const at::Tensor& k, const at::Tensor& v) {
  const int64_t T = k.size(2), end = length_ + T;
  HERD_CHECK_LE(end, capacity_);
  auto& [keys, values] = layers_[layer];
  if (!keys.defined()) {
    keys = at::empty({k.size(0), k.size(1), capacity_, k.size(3)}, k.options());
    values = at::empty_like(keys);
  }
  keys.narrow(2, length_, T).copy_(k);
  values.narrow(2, length_, T).copy_(v);
  return {keys.narrow(2, 0, end), values.narrow(2, 0, end)};
}

}  // namespace herd::nn
