// Memory of the device that a test runs on, the late one unless the test says otherwise.
#pragma once

#include <vector>

#include "herd/base/buffer.h"
#include "herd/base/device_driver.h"

namespace herd::testing_support {

inline Device tested_device = {DeviceKind::kExtension, 0};

// Elements that the host writes and reads through streams of its own.
class OnDevice {
 public:
  OnDevice(int64_t count, DType dtype, int index = tested_device.index)
      : driver_(device_driver(tested_device.kind)),
        memory_(static_cast<std::byte*>(driver_.allocate_shared(count * size_of(dtype) + 1, index))) {
    buffer_ = {memory_, count, dtype, {tested_device.kind, index}};
    buffer_.stream = driver_.create_stream(index);
  }
  ~OnDevice() {
    driver_.free_shared(memory_, buffer_.device.index);
    driver_.destroy_stream(buffer_.device.index, buffer_.stream);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  Buffer buffer() const { return buffer_; }
  Buffer part(int64_t begin, int64_t count) const {
    Buffer part = buffer_;
    part.ptr = memory_ + begin * size_of(buffer_.dtype);
    part.count = count;
    return part;
  }
  // Enqueues the write: what follows on the buffer's stream finds the bytes.
  void write_late(const void* from) {
    written_.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + buffer_.bytes());
    driver_.copy(memory_, written_.data(), buffer_.bytes(), buffer_.device.index, buffer_.stream);
    write_ = driver_.record(buffer_.device.index, buffer_.stream);
  }
  // Returns what is there once the last write_late() is done, whatever else is still enqueued on other streams.
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(static_cast<size_t>(buffer_.bytes()));
    const int index = buffer_.device.index;
    const StreamHandle stream = driver_.create_stream(index);
    if (write_ != nullptr) write_->hold(stream);
    driver_.copy(bytes.data(), memory_, buffer_.bytes(), index, stream);
    driver_.record(index, stream)->wait();
    driver_.destroy_stream(index, stream);
    return bytes;
  }

 private:
  DeviceDriver& driver_;
  std::byte* memory_;
  Buffer buffer_;
  std::vector<std::byte> written_;
  DeviceEventPtr write_;  // null: nothing was written
};

}  // namespace herd::testing_support
