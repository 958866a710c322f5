// Keys and values of the tokens that one attention layer has seen, so that each new token is one row through the
// blocks. Used while generating: Context::cache points at that of the block that runs, Context::past says how many
// tokens it holds. Memory: that of a Program's value, 2 * B * C * (key heads * head width) elements for C tokens.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace herd::nn {

class KeyValueCache {
 public:
  explicit KeyValueCache(int64_t bytes);  // takes them, half for the keys
  int64_t bytes() const { return static_cast<int64_t>(key_bytes_.nbytes() + value_bytes_.nbytes()); }

  // k, v (B, H, T, d) of the tokens after the first `past`; gives those of all tokens so far, (B, H, past + T, d). Each
  // call has k of the same B, H, d and type. Throws kBug beyond the capacity.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v, int64_t past);

 private:
  at::Tensor key_bytes_, value_bytes_;
  at::Tensor keys_, values_;  // the same as (B, H, C, d), from the first call on
};

}  // namespace herd::nn
