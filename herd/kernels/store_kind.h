// Defines how a kernel writes its results.
//   kCached    makes ordinary stores: right while the result fits the cache, or is read next.
//   kStream    makes non-temporal stores, without a read for ownership and without evicting other lines: right for
//              results beyond the cache.
//   kTakeOver  is for lines in other cores' caches, where they are read next. The processor's string copy takes whole
//              lines over unread, and leaves them in the cache. It is kStream where takes_over() is false (copy.h).
// A kernel that streams ends with a store fence, and a string copy's stores come before later ones. So a flag that the
// caller sets next is seen after the data.
#pragma once

#include <cstdint>

namespace herd::kernels {

enum class StoreKind : uint8_t { kCached, kStream, kTakeOver };

}  // namespace herd::kernels
