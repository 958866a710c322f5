// Cuts a shard into pieces at the elements where weight decay starts or stops. Threads: pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "herd/kernels/element_range.h"

namespace herd::kernels {

// Calls visit(begin, end, decayed) for pieces [begin, end) that together are [0, count), in order. Element i of the
// shard is element offset + i of the flat tensor, in which the ranges of `decay` are. REQUIRES ordered, disjoint
// ranges.
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
