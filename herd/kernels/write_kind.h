// Defines WriteKind, which says how a kernel writes its results. Threads: plain data.
//   kCached    makes ordinary stores: right while the result fits the cache, or is read next.
//   kStream    makes non-temporal stores, without a read for ownership and without evicting other lines: right for
//              results beyond the cache.
//   kTakeOver  writes with the processor's string instruction (x86 rep movsb). It takes whole cache lines from other
//              cores without reading them, and keeps them cached: right for a buffer that other cores hold in their
//              caches and read next. It acts as kStream where has_take_over_stores() (copy.h) is false.
// A kernel that streams ends with a store fence, and the string instruction's stores come before later ones. So a flag
// that the caller sets next is seen after the data.
#pragma once

#include <cstdint>

namespace herd::kernels {

enum class WriteKind : uint8_t { kCached, kStream, kTakeOver };

}  // namespace herd::kernels
