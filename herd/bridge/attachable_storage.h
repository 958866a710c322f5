// Defines a flat tensor whose memory comes and goes while the tensor, its views and the autograd graphs that saved them
// stay.
//
//   AttachableStorage weights(elements, at::kFloat, at::kCPU);
//   at::Tensor w = weights.flat().narrow(0, 0, 12).view({3, 4}).detach().requires_grad_();
//   weights.attach(gathered);     // w now reads and writes gathered's memory
//   ... forward ...
//   weights.detach();             // w throws when used
//   weights.attach(elsewhere);    // the same bytes at another place: backward gives the same bits
//
// It swaps the DataPtr and the byte count of its one StorageImpl. Views must be made by `.detach()` of views of flat().
// They then share its version counter, so a write through torch between forward and backward is noticed. Writes that
// bypass torch (a fused optimizer step, a collective) are announced with mark_written().
// Throws kBadConfig when the memory doesn't fit. Threads: one at a time; attach and detach only while no operation runs
// on the tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace herd {

class AttachableStorage {
 public:
  // Begins detached: the tensor has no memory yet.
  AttachableStorage(int64_t elements, at::ScalarType dtype, at::Device device);

  const at::Tensor& flat() const { return flat_; }  // [elements]
  bool attached() const { return attached_; }

  // Lets the tensor read and write `memory`, which is contiguous and has its dtype, device and number of elements. It
  // is kept alive until the next detach. Replaces what was attached before, if anything.
  void attach(const at::Tensor& memory);
  // Does the same with raw memory of the tensor's size. `keep_alive` holds it; where it is empty, the caller holds the
  // memory until detach().
  void attach(void* memory, std::shared_ptr<void> keep_alive);
  void detach();        // the tensor and its views throw when used, until the next attach
  void mark_written();  // makes graphs that saved a view before this call throw in backward

 private:
  at::Tensor flat_;
  size_t bytes_;
  bool attached_ = false;
};

}  // namespace herd
