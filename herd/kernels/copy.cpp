#include "herd/kernels/copy.h"

#include <cstring>

#include "herd/kernels/reduce.h"

namespace herd::kernels {

void copy(void* target, const void* source, int64_t bytes, StoreKind store) {
  if (target == source || bytes == 0) return;
  if (store == StoreKind::kCached) {
    std::memcpy(target, source, static_cast<size_t>(bytes));
  } else {
    copy(std::span<void* const>(&target, 1), source, bytes, store);
  }
}

// A reduction of one input is a copy to every target.
void copy(std::span<void* const> targets, const void* source, int64_t bytes, StoreKind store) {
  if (targets.empty() || bytes == 0) return;
  if (targets.size() == 1 && store == StoreKind::kCached) return copy(targets[0], source, bytes);
  reduce(targets, std::span<const void* const>(&source, 1), bytes, DType::kU8, ReduceOp::kMax, 1.0, store);
}

}  // namespace herd::kernels
