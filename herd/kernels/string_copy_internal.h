// Copies with the processor's string instruction (x86 rep movsb). It takes over the cache lines that it overwrites
// without reading them, whichever cache they are in. Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

bool has_string_copy();  // tells whether the processor has a fast one (ERMS)

// Copies `bytes` bytes, from and to any alignment. REQUIRES has_string_copy(), and ranges that do not overlap.
void string_copy(void* target, const void* source, int64_t bytes);

}  // namespace herd::kernels
