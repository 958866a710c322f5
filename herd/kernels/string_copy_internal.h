// The processor's string copy: it takes over the lines that it overwrites without reading them, from however far a
// cache. Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

bool has_string_copy();  // a fast one; false on processors that have none

// REQUIRES has_string_copy(); ranges that do not overlap. Any alignment.
void string_copy(void* target, const void* source, int64_t bytes);

}  // namespace herd::kernels
