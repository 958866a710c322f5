#include "herd/kernels/reduce_kernel.h"

#include "herd/kernels/simd_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "herd/kernels/reduce_kernel.cpp"
#include <hwy/foreach_target.h>
// highway.h must come after foreach_target.h.
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
    case DType::kI16:
      reduce_integer<int16_t>(call, op);
      break;
    case DType::kU16:
      reduce_integer<uint16_t>(call, op);
      break;
    case DType::kU32:
      reduce_integer<uint32_t>(call, op);
      break;
    case DType::kU64:
      reduce_integer<uint64_t>(call, op);
      break;
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <hwy/cache_control.h>

#include <algorithm>
#include <vector>

#include "herd/base/check.h"
#include "herd/kernels/string_copy_internal.h"

namespace herd::kernels {

HWY_EXPORT(reduce_any);
HWY_EXPORT(target_name);

namespace {

constexpr int64_t kLineBytes = 64, kBlockBytes = 16 << 10;  // a cache line; a block that stays in the L1 cache

bool begin_alike_in_lines(std::span<void* const> targets) {
  const auto line_offset = [](void* target) { return reinterpret_cast<uintptr_t>(target) % kLineBytes; };
  const uintptr_t first = line_offset(targets[0]);
  return std::all_of(targets.begin(), targets.end(), [&](void* target) { return line_offset(target) == first; });
}

// Reduces block by block, and writes each block to every target by itself. One pass can't stream whole lines to targets
// whose lines begin at different elements, and the string copy has one target.
void write_apart(const ReduceCall& call, DType dtype, ReduceOp op) {
  alignas(kLineBytes) std::byte block[kBlockBytes];
  void* const reduced[] = {block};
  const int64_t element_bytes = size_of(dtype), block_elements = kBlockBytes / element_bytes;
  std::vector<const void*> sources(call.sources.size());
  for (int64_t begin = 0; begin < call.count; begin += block_elements) {
    const int64_t count = std::min(block_elements, call.count - begin), offset = begin * element_bytes;
    for (size_t i = 0; i < sources.size(); ++i) sources[i] = static_cast<const std::byte*>(call.sources[i]) + offset;
    HWY_DYNAMIC_DISPATCH(reduce_any)({reduced, sources, count, call.scale, WriteKind::kCached}, dtype, op);
    for (void* target : call.targets) {
      void* const to[] = {static_cast<std::byte*>(target) + offset};
      if (call.store == WriteKind::kTakeOver) {
        string_copy(to[0], block, count * element_bytes);
        continue;
      }
      const void* const from[] = {block};
      HWY_DYNAMIC_DISPATCH(reduce_any)
      ({to, from, count * element_bytes, 1.0, WriteKind::kStream}, DType::kU8, ReduceOp::kMax);
    }
  }
}

}  // namespace

void reduce(std::span<void* const> targets, std::span<const void* const> sources, int64_t count, DType dtype,
            ReduceOp op, double scale, WriteKind store) {
  check_supported(op, dtype);
  HERD_CHECK(!targets.empty() && !sources.empty() && count >= 0, "reduce needs a source and a target");
  HERD_CHECK(scale == 1.0 || is_floating(dtype), "only floating types can be scaled");
  if (store == WriteKind::kTakeOver && !has_string_copy()) store = WriteKind::kStream;
  const ReduceCall call{targets, sources, count, scale, store};
  if (store == WriteKind::kTakeOver || (store == WriteKind::kStream && !begin_alike_in_lines(targets))) {
    write_apart(call, dtype, op);
  } else {
    HWY_DYNAMIC_DISPATCH(reduce_any)(call, dtype, op);
  }
  if (store == WriteKind::kStream) hwy::FlushStream();
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace herd::kernels
#endif
