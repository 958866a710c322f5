// A tensor of this rank and the part of the global tensor that it is: what checkpoints save and load.
// Parameters have their global name; AdamW's moments of parameter w are "w.exp_avg" and "w.exp_avg_sq".
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
  // Undefined, or of as many int16: the tensor is one of fp32 then, of which `value`, bf16, are the upper halves and
  // these the lower ones (bridge/split_float.h).
  at::Tensor low = {};
};

NamedTensor whole_tensor(std::string name, at::Tensor value, at::Tensor low = {});  // this rank has all of it
// Elements [begin, begin + value.numel()) of the flattened global tensor, as ZeRO keeps them.
NamedTensor flat_shard(std::string name, at::Tensor value, std::vector<int64_t> shape, int64_t begin,
                       at::Tensor low = {});

at::ScalarType type_of(const NamedTensor& tensor);  // as a checkpoint holds it

}  // namespace herd
