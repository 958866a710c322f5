#include "herd/kernels/reduce.h"

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/reduce.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "herd/kernels/reduce_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {

template <class Lane>
void reduce_floating(const ReduceCall& call, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kPremultipliedSum:
      return reduce_lanes<Lane, Sum>(call);
    case ReduceOp::kProduct:
      return reduce_lanes<Lane, Product>(call);
    case ReduceOp::kMin:
      return reduce_lanes<Lane, MinOrNan>(call);
    case ReduceOp::kMax:
      return reduce_lanes<Lane, MaxOrNan>(call);
    default:
      return;
  }
}

template <typename T>
void reduce_integer(const ReduceCall& call, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_lanes<PlainLane<T>, Sum>(call);
    case ReduceOp::kProduct:
      return integer_product<T>(call);
    case ReduceOp::kMin:
      return reduce_lanes<PlainLane<T>, Min>(call);
    case ReduceOp::kMax:
      return reduce_lanes<PlainLane<T>, Max>(call);
    case ReduceOp::kAnd:
      return reduce_lanes<PlainLane<T>, And>(call);
    case ReduceOp::kOr:
      return reduce_lanes<PlainLane<T>, Or>(call);
    case ReduceOp::kXor:
      return reduce_lanes<PlainLane<T>, Xor>(call);
    default:
      return;
  }
}

void reduce_any(const ReduceCall& call, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kF32:
      reduce_floating<PlainLane<float>>(call, op);
      break;
    case DType::kF64:
      reduce_floating<PlainLane<double>>(call, op);
      break;
    case DType::kF16:
      reduce_floating<Fp16Lane>(call, op);
      break;
    case DType::kBF16:
      reduce_floating<Bf16Lane>(call, op);
      break;
    case DType::kI8:
      reduce_integer<int8_t>(call, op);
      break;
    case DType::kU8:
    case DType::kBool:  // bytes 0 and 1
      reduce_integer<uint8_t>(call, op);
      break;
    case DType::kI32:
      reduce_integer<int32_t>(call, op);
      break;
    case DType::kI64:
      reduce_integer<int64_t>(call, op);
      break;
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/cache_control.h>

#include "herd/base/check.h"

namespace herd::kernels {

HWY_EXPORT(reduce_any);
HWY_EXPORT(target_name);

void reduce(std::span<void* const> targets, std::span<const void* const> sources, int64_t count, DType dtype,
            ReduceOp op, double scale, StoreKind store) {
  check_supported(op, dtype);
  HERD_CHECK(!targets.empty() && !sources.empty() && count >= 0, "reduce needs a source and a target");
  HERD_CHECK(scale == 1.0 || is_floating(dtype), "only floating types can be scaled");
  HWY_DYNAMIC_DISPATCH(reduce_any)({targets, sources, count, scale, store}, dtype, op);
  if (store == StoreKind::kStream) hwy::FlushStream();
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace herd::kernels
#endif
