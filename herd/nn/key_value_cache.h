// Keys and values of the tokens that a decoder has seen, so that each new token is one row through the blocks.
// Used while generating: Context::cache points at it, TokenEmbedding starts positions at length(), every attention
// layer adds its rows, and the caller ends the pass with advance(). Memory: 2 * layers * B * C * (key heads * head
// width) elements. Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

namespace herd::nn {

class KeyValueCache {
 public:
  explicit KeyValueCache(int64_t capacity) : capacity_(capacity) {}  // tokens
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }

  // k, v (B, H, T, d) of the tokens after length(); gives those of all tokens so far, (B, H, length() + T, d).
  // Throws kBug beyond the capacity.
  std::pair<at::Tensor, at::Tensor> append(int layer, const at::Tensor& k, const at::Tensor& v);
  void advance(int64_t tokens) { length_ += tokens; }
  void clear() { length_ = 0; }

 private:
  int64_t capacity_;
  int64_t length_ = 0;
  std::map<int, std::pair<at::Tensor, at::Tensor>> layers_;
};

}  // namespace herd::nn
