// Streams a weight in blocks of rows, turned where the source keeps it the other way round. Threads: one at a time.
#pragma once

#include <functional>
#include <span>

#include "herd/convert/weight_source.h"

namespace herd::convert {

// Calls visit() with consecutive elements of the weight in the asked-for layout, converted to `dtype`.
// Throws kBadConfig where an element is too large for it.
void stream_weight(WeightSource& source, const Weight& weight, bool transposed, DType dtype,
                   const std::function<void(std::span<const std::byte>)>& visit);

}  // namespace herd::convert
