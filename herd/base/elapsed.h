// Moments and how long something took, on the steady clock, which all processes of a host share.   Threads: any.
#pragma once

#include <chrono>

namespace herd {

inline double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace herd
