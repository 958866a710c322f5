// Defines how a kernel writes its results.
//   kCached    ordinary stores: right while the result fits the cache, or is read next.
//   kStream    non-temporal stores: no read for ownership and no eviction of others, right for results beyond the
//   cache. kTakeOver  for lines that lie in other cores' caches, where they are read next: the processor's string copy
//   takes
//              whole lines over unread, and leaves them in the cache. kStream where it has no fast one (takes_over()).
// A kernel that streams ends with a store fence, and a string copy's stores come before later ones, so a flag that the
// caller sets next is seen after the data.
#pragma once

#include <cstdint>

namespace herd::kernels {

enum class StoreKind : uint8_t { kCached, kStream, kTakeOver };

}  // namespace herd::kernels
