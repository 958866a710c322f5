// An ElementRange is the elements [begin, end) of a flat tensor. Threads: plain data.
#pragma once

#include <cstdint>

namespace herd::kernels {

struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

}  // namespace herd::kernels
