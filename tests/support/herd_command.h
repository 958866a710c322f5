// The command of this build.
#pragma once

#include <cstdlib>
#include <string>

namespace herd::testing_support {

inline const std::string kHerd =
    std::string(std::getenv("HERD_BINARY_DIR") ? std::getenv("HERD_BINARY_DIR") : ".") + "/herd";

}  // namespace herd::testing_support
