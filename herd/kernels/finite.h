// Finds NaN and infinity.   Threads: any.
#pragma once

#include <cstdint>

namespace herd::kernels {

// Index of the first value that is not finite, -1 if all are.
int64_t first_non_finite(const float* values, int64_t count);

}  // namespace herd::kernels
