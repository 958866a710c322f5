// The command of this build.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace herd::testing_support {

inline const std::string kHerd =
    std::string(std::getenv("HERD_BINARY_DIR") ? std::getenv("HERD_BINARY_DIR") : ".") + "/herd";

// Returns the command without its standard error, where status lines stand if the machine is slow.
inline std::vector<std::string> without_status_lines(std::vector<std::string> command) {
  command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$@\" 2>/dev/null", "sh"});
  return command;
}

}  // namespace herd::testing_support
