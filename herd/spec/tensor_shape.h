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

// A size of a tensor is `factor`, or `factor` for each sample of the micro-batch.
struct Extent {
  int64_t factor = 0;
  bool per_sample = false;
  bool operator==(const Extent&) const = default;
};

struct TensorShape {
  std::string name = {};             // name in the batch; empty for what blocks give
  int64_t bytes = 0;                 // bytes of a full micro-batch
  bool differentiable = true;        // false: no gradient flows back through it, such as a mask
  DType dtype = DType::kF32;         // type of its elements
  std::vector<Extent> extents = {};  // its sizes; empty where the model's family knows them
  bool operator==(const TensorShape&) const = default;
};

}  // namespace herd::spec
