// Defines the tensors that the blocks of a chain pass on: how they are named, and what is known of each before a run.
// Threads: plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/dtype.h"

namespace herd::spec {

// Names tensor `tensor` of what `producer` gives. Producer 0 is the batch, and producer b + 1 is block b.
struct TensorId {
  constexpr TensorId(int made_by = 0, int number = 0) : producer(made_by), tensor(number) {}
  int producer, tensor;
  auto operator<=>(const TensorId&) const = default;
};

// A size of a tensor is factor * S^samples * T^tokens, of a micro-batch of S samples with T tokens each.
struct Extent {
  int64_t factor = 0;
  int samples = 0, tokens = 0;  // exponents, at least 0
  bool operator==(const Extent&) const = default;
  int64_t size(int64_t num_samples, int64_t num_tokens) const {
    int64_t size = factor;
    for (int i = 0; i < samples; ++i) size *= num_samples;
    for (int i = 0; i < tokens; ++i) size *= num_tokens;
    return size;
  }
};

struct TensorShape {
  std::string name = {};             // name in the batch; empty for what blocks give
  int64_t bytes = 0;                 // bytes of a full micro-batch of the most tokens
  bool differentiable = true;        // false: no gradient flows back through it, such as a mask
  DType dtype = DType::kF32;         // type of its elements
  std::vector<Extent> extents = {};  // its sizes; empty where the model's family knows them
  bool is_whole = false;             // each tensor rank has all of it, also where its block works on a part of the rows
  bool operator==(const TensorShape&) const = default;
  std::vector<int64_t> sizes(int64_t num_samples, int64_t num_tokens) const {
    std::vector<int64_t> out;
    for (const Extent& extent : extents) out.push_back(extent.size(num_samples, num_tokens));
    return out;
  }
};

}  // namespace herd::spec
