// Cuts a shard where weight decay starts or stops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "herd/kernels/element_range.h"

namespace herd::kernels {

// Calls visit(begin, end, decayed) for the pieces of [0, count), in order; `decay` counts from -offset.
template <typename Visit>
void for_decay_segments(int64_t offset, int64_t count, std::span<const ElementRange> decay, Visit visit) {
  int64_t at = 0;
  for (const ElementRange& range : decay) {
    const int64_t begin = std::clamp<int64_t>(range.begin - offset, at, count);
    const int64_t end = std::clamp<int64_t>(range.end - offset, begin, count);
    if (begin > at) visit(at, begin, false);
    if (end > begin) visit(begin, end, true);
    at = end;
  }
  if (count > at) visit(at, count, false);
}

}  // namespace herd::kernels
