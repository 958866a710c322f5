#include "herd/ddp/gradient_buckets.h"

#include <map>

namespace herd::ddp {

std::vector<GradientBucket> plan_gradient_buckets(const std::vector<GradientShape>& shapes, int64_t first_bucket_bytes,
                                                  int64_t bucket_bytes) {
  std::vector<GradientBucket> buckets;
  std::map<DType, size_t> open;  // the last bucket of each dtype
  for (int index = static_cast<int>(shapes.size()) - 1; index >= 0; --index) {
    const GradientShape& shape = shapes[static_cast<size_t>(index)];
    const int64_t line = 64 / size_of(shape.dtype);  // elements of a cache line
    const int64_t padded = (shape.elements + line - 1) / line * line;
    auto last = open.find(shape.dtype);
    const int64_t limit = last != open.end() && last->second == 0 ? first_bucket_bytes : bucket_bytes;
    const bool full = last != open.end() && (buckets[last->second].elements + padded) * size_of(shape.dtype) > limit;
    if (last == open.end() || full) {
      last = open.insert_or_assign(shape.dtype, buckets.size()).first;
      buckets.emplace_back().dtype = shape.dtype;
    }
    GradientBucket& bucket = buckets[last->second];
    bucket.parameters.push_back(index);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += padded;
  }
  for (GradientBucket& bucket : buckets) bucket.elements += bucket.num_flags();
  return buckets;
}

}  // namespace herd::ddp
