// How much of a long product of layouts, mutants or steps a run of the tests takes.
#pragma once

#include <cstdlib>

namespace herd {

// One of so many: all of them with HERD_FULL_TESTS=1, and fewer under the sanitizers, which look at how the library
// computes, not at what. A stride that shares no factor with the lengths of the loops takes all of their values.
inline int one_in(int plain, int sanitized) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  plain = sanitized;
#else
  (void)sanitized;
#endif
  return std::getenv("HERD_FULL_TESTS") != nullptr ? 1 : plain;
}

}  // namespace herd
