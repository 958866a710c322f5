#include "herd/base/reduce_op.h"

#include <string>

#include "herd/base/error.h"

namespace herd {

std::string_view reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kAnd:
      return "and";
    case ReduceOp::kOr:
      return "or";
    case ReduceOp::kXor:
      return "xor";
    case ReduceOp::kPremultipliedSum:
      return "premultiplied_sum";
  }
  return "unknown op";
}

ReduceOp parse_reduce_op(std::string_view name) {
  std::string names;
  for (ReduceOp op : kReduceOps) {
    if (reduce_op_name(op) == name) return op;
    names += (names.empty() ? "" : ", ") + std::string(reduce_op_name(op));
  }
  throw Error(Code::kBadConfig, "no reduce op \"" + std::string(name) + "\"; valid: " + names);
}

bool supports(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return dtype != DType::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return true;
    case ReduceOp::kAverage:
    case ReduceOp::kPremultipliedSum:
      return is_floating(dtype);
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor:
      return !is_floating(dtype);
  }
  return false;
}

void check_supported(ReduceOp op, DType dtype) {
  if (supports(op, dtype)) return;
  std::string valid;
  for (ReduceOp candidate : kReduceOps) {
    if (supports(candidate, dtype)) valid += (valid.empty() ? "" : ", ") + std::string(reduce_op_name(candidate));
  }
  throw Error(Code::kBadConfig, "reduce op \"" + std::string(reduce_op_name(op)) + "\" is not defined for " +
                                    std::string(dtype_name(dtype)) + "\n  fix: one of " + valid);
}

}  // namespace herd
