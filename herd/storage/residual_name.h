// Names what a rank of a run has lost by encoding gradients (error feedback), as checkpoints hold it: it belongs to
// that rank of a job of as many ranks, not to a parameter.   Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace herd {

constexpr std::string_view kResidualPrefix = "gradient_residual.";

// Returns "gradient_residual.3.h.7" for rank 3 and parameter group "h.7".
inline std::string residual_name(int rank, std::string_view group) {
  return std::string(kResidualPrefix) + std::to_string(rank) + "." + std::string(group);
}
inline bool is_residual_name(std::string_view tensor) { return tensor.starts_with(kResidualPrefix); }

}  // namespace herd
