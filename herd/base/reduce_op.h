// Defines how contributions of ranks meet in reduce, all-reduce and reduce-scatter.
//   sum, product  integers wrap; bool is refused
//   min, max      NaN propagates
//   average       sum / ranks, floating types only
//   and, or, xor  bit by bit; bool and integers (for bool min = and, max = or)
//   premultiplied_sum  each rank's input times its own OpOptions::factor, then summed; floating types only
#pragma once

#include <cstdint>
#include <string_view>

#include "herd/base/dtype.h"

namespace herd {

enum class ReduceOp : uint8_t { kSum, kProduct, kMin, kMax, kAverage, kAnd, kOr, kXor, kPremultipliedSum };

inline constexpr ReduceOp kAllReduceOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                             ReduceOp::kMax, ReduceOp::kAverage, ReduceOp::kAnd,
                                             ReduceOp::kOr,  ReduceOp::kXor,     ReduceOp::kPremultipliedSum};

std::string_view reduce_op_name(ReduceOp op);     // "sum", "product", "min", "max", "average", "and", "or", "xor", ...
ReduceOp parse_reduce_op(std::string_view name);  // throws kBadConfig, naming the valid names
bool supports(ReduceOp op, DType dtype);
void check_supported(ReduceOp op, DType dtype);  // throws kBadConfig with the rule

}  // namespace herd
