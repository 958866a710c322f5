// Converts arrays of 16-bit floating types to fp32 and back, as half.h states it.   Threads: any.
#pragma once

#include <cstdint>

#include "herd/base/dtype.h"

namespace herd::kernels {

// REQUIRES type kBF16 or kF16, whose bit patterns `half` holds.
void widen(DType type, const uint16_t* half, float* wide, int64_t count);
void narrow(DType type, const float* wide, uint16_t* half, int64_t count);

}  // namespace herd::kernels
