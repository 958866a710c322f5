// Defines how a message of `elements` is cut into n parts. Part r of n has elements / n of them, plus one if r <
// elements % n. All-gather's inputs and reduce-scatter's outputs are these parts; algorithms cut their pieces the same
// way. Threads: pure.
#pragma once

#include <cstdint>

namespace herd {

struct Range {  // elements [begin, end)
  int64_t begin = 0;
  int64_t end = 0;
  constexpr int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Returns part `index` of [0, elements). REQUIRES 0 <= index < parts.
constexpr Range part_of(int64_t elements, int parts, int index) {
  const int64_t each = elements / parts, longer = elements % parts;
  const int64_t begin = index * each + (index < longer ? index : longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

// Returns part `index` of [range.begin, range.end).
constexpr Range part_of(Range range, int parts, int index) {
  const Range part = part_of(range.size(), parts, index);
  return {range.begin + part.begin, range.begin + part.end};
}

}  // namespace herd
