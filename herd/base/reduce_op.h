// Defines how reduce, all-reduce and reduce-scatter combine the inputs of ranks.   Threads: pure.
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

// Holds every ReduceOp, in the order of the enum.
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                          ReduceOp::kMax, ReduceOp::kAverage, ReduceOp::kAnd,
                                          ReduceOp::kOr,  ReduceOp::kXor,     ReduceOp::kPremultipliedSum};

// Returns "sum", "product", "min", "max", "average", "and", "or", "xor" or "premultiplied_sum".
std::string_view reduce_op_name(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // throws kBadConfig with the valid names
bool supports(ReduceOp op, DType dtype);          // tells whether the table above has the op for the type
void check_supported(ReduceOp op, DType dtype);   // throws kBadConfig with the ops that the type has

}  // namespace herd
