// Closes a file descriptor at the end of its scope. Threads: plain data.
#pragma once

#include <unistd.h>

#include <utility>

namespace herd {

struct Descriptor {
  int fd = -1;  // -1 owns nothing
  Descriptor() = default;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  void reset() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
};

}  // namespace herd
