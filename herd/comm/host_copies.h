// Gives an operation on device memory a copy of its buffers in page-locked memory of the host, on which its schedule
// runs as on any other: what the operation reads is copied there before, what it writes is copied back afterwards.
// Copies run on streams of the group, and nobody waits for them but the operation.
//   Buffers that overlap or follow each other do so in the copy, so an operation in place stays one. Buffers of a list
//   follow each other there whether they do on the device or not, so a list needs no packing.
// Threads: made by the thread that issues the operation; then under the engine's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/comm/device_steps.h"
#include "herd/transport/transport.h"

namespace herd::comm {

// The streams of a group on one device. Copies to the host and from it run beside each other.
class DeviceLanes {
 public:
  explicit DeviceLanes(Device device);
  ~DeviceLanes();
  DeviceLanes(const DeviceLanes&) = delete;
  DeviceLanes& operator=(const DeviceLanes&) = delete;

  DeviceDriver& driver() { return driver_; }
  int device() const { return device_.index; }
  StreamHandle to_host() const { return to_host_; }
  StreamHandle to_device() const { return to_device_; }

 private:
  Device device_;
  DeviceDriver& driver_;
  StreamHandle to_host_ = nullptr, to_device_ = nullptr;
};

// The lanes of a group, made when an operation first asks for them. Threads: any.
class DeviceLanesTable {
 public:
  std::shared_ptr<DeviceLanes> of(Device device);

 private:
  std::mutex mutex_;
  std::map<std::pair<DeviceKind, int>, std::shared_ptr<DeviceLanes>> lanes_;
};

inline bool on_device(const Buffer& buffer) { return buffer.device.kind != DeviceKind::kCpu; }
inline bool on_device(std::span<const Buffer> buffers) {
  for (const Buffer& buffer : buffers) {
    if (on_device(buffer)) return true;
  }
  return false;
}

class HostCopies final : public DeviceSteps {
 public:
  // Begins to copy what the operation reads, once the work before it on the buffers' streams is done. Throws kBadConfig
  // for buffers on different devices, and for a buffer without memory.
  HostCopies(std::shared_ptr<transport::Transport> transport, DeviceLanesTable& lanes, std::span<const Buffer> reads,
             std::span<const Buffer> writes, std::string_view what);

  // Returns the copy of a buffer that the operation reads or writes; of another one a buffer without memory.
  Buffer of(const Buffer& buffer) const;
  std::vector<Buffer> of(std::span<const Buffer> buffers) const;

  bool load() override { return loaded_ == nullptr || loaded_->done.load(std::memory_order_acquire); }
  void store() override;
  bool stored() override;

 private:
  // What a thread of the driver may still hold when the operation is over.
  struct Signal {
    std::atomic<bool> done{false};
    std::shared_ptr<transport::Transport> transport;
    std::shared_ptr<std::byte> memory;
  };
  struct Extent {  // a piece of device memory, and its place in the copy
    std::byte *begin, *end;
    int64_t offset = -1;
  };
  struct Piece {
    std::byte *device, *host;
    int64_t bytes;
  };

  void find_extents(std::span<const Buffer> reads, std::span<const Buffer> writes);
  int64_t place_extents(std::span<const Buffer> reads, std::span<const Buffer> writes);
  const Extent* extent_of(const Buffer& buffer) const;
  std::vector<Piece> pieces_of(std::span<const Buffer> buffers) const;
  std::shared_ptr<Signal> signal_after(StreamHandle stream);

  std::shared_ptr<transport::Transport> transport_;
  std::shared_ptr<DeviceLanes> lanes_;
  std::vector<Extent> extents_;  // ascending
  std::shared_ptr<std::byte> memory_;
  std::vector<DeviceEventPtr> before_;  // on the buffers' streams
  std::vector<Piece> stores_;
  std::shared_ptr<Signal> loaded_, stored_;  // null where nothing is copied
  std::exception_ptr refusal_;               // of the driver, to copy back
};

}  // namespace herd::comm
