#include "herd/storage/tensor_type.h"

#include <utility>

namespace herd {
namespace {

constexpr std::pair<DType, std::string_view> kNames[] = {
    {DType::kF32, "F32"}, {DType::kF64, "F64"}, {DType::kF16, "F16"}, {DType::kBF16, "BF16"}, {DType::kI8, "I8"},
    {DType::kU8, "U8"},   {DType::kI32, "I32"}, {DType::kI64, "I64"}, {DType::kBool, "BOOL"}, {DType::kI16, "I16"},
    {DType::kU16, "U16"}, {DType::kU32, "U32"}, {DType::kU64, "U64"}};

}  // namespace

const std::vector<TensorType>& all_tensor_types() {
  static const std::vector<TensorType> types = {
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
      {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},
      {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},    {"I64", 64}, {"U64", 64}};
  return types;
}

std::optional<TensorType> find_tensor_type(std::string_view name) {
  for (const auto& type : all_tensor_types()) {
    if (type.name == name) return type;
  }
  return {};
}

std::string_view tensor_type_of(DType dtype) {
  for (const auto& [type, name] : kNames) {
    if (type == dtype) return name;
  }
  return {};
}

std::optional<DType> dtype_of_tensor(std::string_view name) {
  for (const auto& [type, type_name] : kNames) {
    if (type_name == name) return type;
  }
  return {};
}

std::optional<int64_t> num_elements(const std::vector<int64_t>& shape) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  int64_t count = 1;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) return {};
    if (size == 0) empty = true;
    if (size > 0 && count > kLimit / size) return {};
    if (size > 0) count *= size;
  }
  return empty ? 0 : count;
}

}  // namespace herd
