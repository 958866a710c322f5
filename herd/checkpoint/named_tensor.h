// Defines what checkpoints save and load: a tensor of this rank, and which part of the global tensor it is.
// A parameter has its global name; AdamW's moments of parameter w are "w.exp_avg" and "w.exp_avg_sq".
// Threads: plain data, pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "herd/storage/tensor_slice.h"

namespace herd {

struct NamedTensor {
  std::string name;  // global
  at::Tensor value;  // contiguous; its elements are `slice`, row-major
  TensorSlice slice;
  std::vector<int64_t> shape;  // of the global tensor
  // Defined only for a split fp32 tensor: then `value` (bf16) holds the upper halves and this (int16) the lower ones
  // (bridge/split_float.h).
  at::Tensor low_halves = {};
};

// Names a tensor of which this rank has all.
NamedTensor whole_tensor(std::string name, at::Tensor value, at::Tensor low = {});
// Names elements [begin, begin + value.numel()) of the flattened global tensor, as ZeRO keeps them.
NamedTensor flat_shard(std::string name, at::Tensor value, std::vector<int64_t> shape, int64_t begin,
                       at::Tensor low = {});

at::ScalarType type_of(const NamedTensor& tensor);  // returns the type that a checkpoint holds: fp32 for two halves

}  // namespace herd
