// Copies memory with a WriteKind (write_kind.h) that the caller chooses, and copies one source to m targets in a single
// read. One-to-many moves (1 + m) * bytes, where m copies would move 2 * m * bytes. Threads: any; the ranges written
// must not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "herd/kernels/write_kind.h"

namespace herd::kernels {

// REQUIRES bytes >= 0, and ranges that do not overlap, or target == source. Any alignment is legal.
void copy(void* target, const void* source, int64_t bytes, WriteKind store = WriteKind::kCached);
void copy(std::span<void* const> targets, const void* source, int64_t bytes, WriteKind store = WriteKind::kCached);

// Returns true if kTakeOver acquires cache lines without reading them on this processor; else it acts as kStream.
bool has_take_over_stores();

}  // namespace herd::kernels
