// Copies tensors of the host to a device while the host goes on: their bytes wait in page-locked memory until the
// device has read them. The memory is kept, so a step that copies as much as the last one asks the system for none.
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace herd {

class StagedCopies {
 public:
  explicit StagedCopies(at::Device device) : device_(device) {}
  // Returns a copy on the device, of the same sizes, contiguous, enqueued on this thread's stream. What `from` holds
  // may change at once.
  at::Tensor copy(const at::Tensor& from);
  // Lets the page-locked memory be used again. REQUIRES that the device has done the copies so far.
  void reuse();

 private:
  at::Tensor take(int64_t bytes);  // page-locked, of bytes

  at::Device device_;
  std::vector<at::Tensor> blocks_;
  size_t block_ = 0;    // the one that is being filled
  int64_t filled_ = 0;  // its bytes that are taken
};

}  // namespace herd
