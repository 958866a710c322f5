// Turns herd's errors into PyTorch's: DistBackendError with the rank, the group and herd's words. PyTorch's programs
// look for " Timed out " and " closed ". Threads: pure.
#pragma once

#include <exception>
#include <string>

#include "herd/base/error.h"

namespace herd::pytorch {

// Tells whose operation failed: "rank 1 of group \"world\"".
std::exception_ptr torch_error(const Error& error, const std::string& who);

// Runs `call`, and throws PyTorch's error in place of herd's.
template <typename Call>
auto translated(const std::string& who, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    std::rethrow_exception(torch_error(error, who));
  }
}

}  // namespace herd::pytorch
