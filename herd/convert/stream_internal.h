// Streams a weight in blocks of rows, and transposes it if the source keeps it the other way round. Threads: one at a
// time.
#pragma once

#include <functional>
#include <span>

#include "herd/convert/weight_source.h"

namespace herd::convert {

// Calls visit() with consecutive elements of the weight, about 2^20 or one row at a time, converted to `dtype`. They
// are in row order of the weight, or with `transposed` of its transpose. The bytes are valid during the call. Throws
// kBadConfig where `dtype` cannot hold an element, or where one is NaN or infinite.
void stream_weight(WeightSource& source, const Weight& weight, bool transposed, DType dtype,
                   const std::function<void(std::span<const std::byte>)>& visit);

}  // namespace herd::convert
