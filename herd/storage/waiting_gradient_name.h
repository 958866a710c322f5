// Names the gradient of a parameter that waits for a delayed update, as checkpoints hold it.   Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace herd {

constexpr std::string_view kWaitingGradientSuffix = ".waiting_gradient";

// Returns "h.7.mlp.up.weight.waiting_gradient".
inline std::string waiting_gradient_name(std::string_view parameter) {
  return std::string(parameter) + std::string(kWaitingGradientSuffix);
}
inline bool is_waiting_gradient_name(std::string_view tensor) { return tensor.ends_with(kWaitingGradientSuffix); }

}  // namespace herd
