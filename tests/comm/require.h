// What must hold inside a rank, where a failure has to become the rank's own error.
#pragma once

#include <stdexcept>
#include <string>

namespace herd::testing_support {

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace herd::testing_support
