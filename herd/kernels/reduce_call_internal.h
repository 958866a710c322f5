// Holds the arguments of one reduce() (reduce_kernel.h), for the code of the chosen instruction set. Borrows all
// memory.
// Threads: plain data.
#pragma once

#include <cstdint>
#include <span>

#include "herd/kernels/write_kind.h"

namespace herd::kernels {

struct ReduceCall {
  std::span<void* const> targets;
  std::span<const void* const> sources;
  int64_t count;  // elements of each source and target
  double scale;   // multiplies each result; 1 for integers
  WriteKind store;
};

}  // namespace herd::kernels
