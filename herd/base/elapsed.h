// Reads the steady clock, which all processes of a host share.   Threads: any.
#pragma once

#include <chrono>
#include <cstdint>

namespace herd {

inline double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
inline double now_us() { return 1e-3 * static_cast<double>(now_ns()); }

}  // namespace herd
