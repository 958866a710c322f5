// A flat tensor whose memory comes and goes while the tensor, its views and the autograd graphs that saved them stay.
//
//   AttachableStorage weights(elements, at::kFloat, at::kCPU);
//   at::Tensor w = weights.flat().narrow(0, 0, 12).view({3, 4}).detach().requires_grad_();
//   weights.attach(gathered);     // w now reads and writes gathered's memory
//   ... forward ...
//   weights.detach();             // w throws when used
//   weights.attach(elsewhere);    // the same bytes at another place: backward gives the same bits
//
// How: the DataPtr and the byte count of the one StorageImpl are swapped. Views must be made by `.detach()` of views of
// flat(): they then share its version counter, so that a write through torch between forward and backward is noticed.
// Writes past torch (a fused optimizer step, a collective) are announced with mark_written().
// Throws kBadConfig when the memory doesn't fit. Threads: one at a time; attach and detach only while no operation runs
// on the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace herd {

class AttachableStorage {
 public:
  AttachableStorage(int64_t elements, at::ScalarType dtype, at::Device device);  // detached at first

  const at::Tensor& flat() const { return flat_; }  // [elements]
  bool attached() const { return attached_; }

  // `memory`: contiguous, same dtype and device, as many elements. Kept alive until the next detach.
  void attach(const at::Tensor& memory);
  // Raw memory of the same size, held through keep_alive (may be empty: then the caller holds it until detach).
  void attach(void* memory, std::shared_ptr<void> keep_alive);
  void detach();
  void mark_written();  // graphs that saved a view before this throw in backward

 private:
  at::Tensor flat_;
  size_t bytes_;
  bool attached_ = false;
};

}  // namespace herd
