// What every source of this folder needs to launch a kernel. Contexts are the primary ones, which torch uses too.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "herd/kernels/device_kernels.h"

namespace herd::kernels::cuda {

// Throws kBadConfig with CUDA's own words where the status is an error.
void check(cudaError_t status, const char* what);

// Makes a device current in this thread, and the former one again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check(cudaGetDevice(&former_), "cudaGetDevice");
    changed_ = former_ != device;
    if (changed_) check(cudaSetDevice(device), "cudaSetDevice");
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(former_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int former_ = 0;
  bool changed_ = false;
};

inline cudaStream_t stream_of(const OnStream& on) { return static_cast<cudaStream_t>(on.stream); }

// Tells whether all pointers can be read 16 bytes at a time; null ones are not read.
template <typename... Pointers>
bool are_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int kThreads = 256;  // of a block, where the kernel does not say otherwise
constexpr int kEight = 8;      // elements that a thread takes at a time: 16 bytes of a 16-bit type

// Returns the number of blocks in which each thread takes eight elements.
inline unsigned blocks_of_eights(int64_t count) {
  return static_cast<unsigned>(ceil_div(count, int64_t{kEight} * kThreads));
}

}  // namespace herd::kernels::cuda
