// Keeps page-locked memory for copies between a device and the host, since the system takes milliseconds to lock pages.
// There is one pool for each kind of device, which lives as long as the process.
// Threads: any. A block may be given back by a thread of the driver, so that calls no driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "herd/base/device_driver.h"

namespace herd::comm {

class PageLockedPool {
 public:
  static constexpr int64_t kKept = int64_t{512} << 20;  // bytes that nobody uses, at most

  static PageLockedPool& of(DeviceKind kind);
  explicit PageLockedPool(DeviceDriver& driver) : driver_(driver) {}
  // Returns memory that goes back to the pool with its last owner; null for 0 bytes. Throws what the driver throws.
  std::shared_ptr<std::byte> take(int64_t bytes);
  int64_t unused_bytes() const;

 private:
  void give_back(std::byte* memory, int64_t bytes);
  void trim(std::unique_lock<std::mutex>& lock);

  DeviceDriver& driver_;
  mutable std::mutex mutex_;
  std::map<int64_t, std::vector<std::byte*>> unused_;  // by size
  int64_t unused_bytes_ = 0;
};

}  // namespace herd::comm
