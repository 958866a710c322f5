#include "herd/kernels/copy.h"

#include <algorithm>
#include <cstring>

#include "herd/kernels/reduce_kernel.h"
#include "herd/kernels/string_copy_internal.h"

namespace herd::kernels {
namespace {

constexpr int64_t kBlockBytes = 64 << 10;  // of the source, which the second target finds in the core's cache

}  // namespace

void copy(void* target, const void* source, int64_t bytes, WriteKind store) {
  if (target == source || bytes == 0) return;
  if (store == WriteKind::kCached) {
    std::memcpy(target, source, static_cast<size_t>(bytes));
  } else {
    copy(std::span<void* const>(&target, 1), source, bytes, store);
  }
}

// A reduction of one input is a copy to every target.
void copy(std::span<void* const> targets, const void* source, int64_t bytes, WriteKind store) {
  if (targets.empty() || bytes == 0) return;
  if (store == WriteKind::kTakeOver && has_string_copy()) {
    for (int64_t begin = 0; begin < bytes; begin += kBlockBytes) {
      const auto* const block = static_cast<const std::byte*>(source) + begin;
      const int64_t count = std::min(kBlockBytes, bytes - begin);
      for (void* target : targets) {
        if (target != source) string_copy(static_cast<std::byte*>(target) + begin, block, count);
      }
    }
    return;
  }
  if (targets.size() == 1 && store == WriteKind::kCached) return copy(targets[0], source, bytes);
  reduce(targets, std::span<const void* const>(&source, 1), bytes, DType::kU8, ReduceOp::kMax, 1.0, store);
}

bool has_take_over_stores() { return has_string_copy(); }

}  // namespace herd::kernels
