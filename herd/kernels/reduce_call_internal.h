// The arguments of one reduce(), handed to the code of the chosen instruction set.
#pragma once

#include <cstdint>
#include <span>

#include "herd/kernels/store_kind.h"

namespace herd::kernels {

struct ReduceCall {
  std::span<void* const> targets;
  std::span<const void* const> sources;
  int64_t count;  // elements
  double scale;
  StoreKind store;
};

}  // namespace herd::kernels
