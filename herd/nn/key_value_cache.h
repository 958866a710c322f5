// Holds the keys and values of the tokens that one attention layer has seen. So a pass that continues a text computes
// the new tokens alone. Context::cache points at the cache of the block that runs; Context::past counts its tokens.
//   B sequences, T new tokens, C capacity in tokens, H key heads of width d. It holds 2 * B * C * H * d elements.
// Owns its memory. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace herd::nn {

class KeyValueCache {
 public:
  // Allocates `bytes`, half of them for keys and half for values. REQUIRES an even number.
  explicit KeyValueCache(int64_t bytes, c10::Device device = c10::kCPU);
  int64_t bytes() const { return static_cast<int64_t>(key_bytes_.nbytes() + value_bytes_.nbytes()); }

  // Writes the keys k and values v, both [B, H, T, d], of the tokens after the first `past`. Returns those of all
  // tokens so far, [B, H, past + T, d], as views that the next append() may overwrite. REQUIRES the same B, H, d and
  // type in each call. Throws kBug where past + T is above the capacity.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& k, const at::Tensor& v, int64_t past);

 private:
  at::Tensor key_bytes_, value_bytes_;
  at::Tensor keys_, values_;  // views of those bytes, [B, H, C, d]; undefined before the first append()
};

}  // namespace herd::nn
