// Names the element types of safetensors files as those files do; herd's own types are some of them. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "herd/base/dtype.h"

namespace herd {

struct TensorType {
  std::string_view name;  // "F32"
  int bits;               // bits of an element
};

const std::vector<TensorType>& all_tensor_types();
std::optional<TensorType> find_tensor_type(std::string_view name);

std::string_view tensor_type_of(DType dtype);  // returns "F32" for DType::kF32
// Returns nothing for types that herd does not compute with.
std::optional<DType> dtype_of_tensor(std::string_view name);

// Returns the number of elements of a shape; nothing if a dimension is negative or the product exceeds 2^62.
std::optional<int64_t> num_elements(const std::vector<int64_t>& shape);

}  // namespace herd
