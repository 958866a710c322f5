// Counts the copies of key and value heads among tensor-parallel ranks. Threads: pure.
#pragma once

#include "herd/spec/run_file.h"

namespace herd::spec {

// Returns how many tensor-parallel ranks hold the same key and value heads: tp / kv_heads where there are fewer heads
// than ranks, else 1.
int key_copies(const RunFile& run);

}  // namespace herd::spec
