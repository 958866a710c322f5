// How long something took.   Threads: any.
#pragma once

#include <chrono>

namespace herd {

inline double us_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace herd
