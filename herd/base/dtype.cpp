#include "herd/base/dtype.h"

#include <string>

#include "herd/base/error.h"

namespace herd {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF64:
      return "fp64";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kBool:
      return "bool";
    case DType::kI16:
      return "int16";
    case DType::kU16:
      return "uint16";
    case DType::kU32:
      return "uint32";
    case DType::kU64:
      return "uint64";
  }
  return "unknown dtype";
}

DType parse_dtype(std::string_view name) {
  std::string names;
  for (DType dtype : kAllDTypes) {
    if (dtype_name(dtype) == name) return dtype;
    names += (names.empty() ? "" : ", ") + std::string(dtype_name(dtype));
  }
  throw Error(Code::kBadConfig, "no dtype \"" + std::string(name) + "\"; valid: " + names);
}

}  // namespace herd
