// Copies of memory whose store kind is the caller's choice, and one source to many targets in a single read.
// Traffic: one-to-many moves (1 + m) * bytes, m copies would move 2 * m * bytes.
#pragma once

#include <cstdint>
#include <span>

#include "herd/kernels/store_kind.h"

namespace herd::kernels {

// REQUIRES bytes >= 0; ranges that do not overlap, or target == source. Any alignment.
void copy(void* target, const void* source, int64_t bytes, StoreKind store = StoreKind::kCached);
void copy(std::span<void* const> targets, const void* source, int64_t bytes, StoreKind store = StoreKind::kCached);

bool takes_over();  // whether kTakeOver does, on this processor

}  // namespace herd::kernels
