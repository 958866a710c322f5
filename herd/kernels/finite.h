// Finds NaN and infinity.   Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

// Returns the index of the first value that is not finite, -1 if all are.
int64_t first_non_finite(const float* values, int64_t count);

}  // namespace herd::kernels
