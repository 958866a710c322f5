// Defines the element types of collectives and tensors. Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace herd {

enum class DType : uint8_t { kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64, kBool, kI16, kU16, kU32, kU64 };

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                                       DType::kU8,  DType::kI32, DType::kI64, DType::kBool, DType::kI16,
                                       DType::kU16, DType::kU32, DType::kU64};

constexpr int64_t size_of(DType dtype) {  // bytes per element
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Returns "fp32", "fp64", "fp16", "bf16", "int8", "uint8", "int32", "int64", "bool", "int16", "uint16", "uint32" or
// "uint64".
std::string_view dtype_name(DType dtype);
// Throws kBadConfig with the valid names.
DType parse_dtype(std::string_view name);

}  // namespace herd
