// Memory of a device for benches, and the limits that the device and its link to the host set to an operation.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "herd/base/buffer.h"
#include "herd/base/device_driver.h"
#include "herd/cli/bench_operation.h"
#include "herd/comm/communicator.h"

namespace herd::cli {

// A buffer on a device beside one in page-locked memory, from which it is written and into which it is read.
class DeviceTwin {
 public:
  DeviceTwin(Device device, int64_t bytes);
  ~DeviceTwin();
  DeviceTwin(const DeviceTwin&) = delete;
  DeviceTwin& operator=(const DeviceTwin&) = delete;

  std::byte* host() { return host_; }
  std::byte* device() { return device_memory_; }
  void write();  // copies the host's bytes to the device, and waits
  void read();   // copies the device's bytes to the host, and waits
  // Return the microseconds of `times` copies, one after the other: inside the device, from it to the host, back.
  double us_inside(int times);
  double us_to_host(int times);
  double us_to_device(int times);

 private:
  double us_of(void* to, const void* from, int64_t bytes, int times);

  Device device_;
  DeviceDriver& driver_;
  int64_t bytes_;
  std::byte *host_ = nullptr, *device_memory_ = nullptr;
  StreamHandle stream_ = nullptr;
};

struct DeviceBounds {  // GB/s
  double copy = 0;     // inside the device, bytes copied
  double to_host = 0, to_device = 0;
};
// Measures on rank 0 while the others wait. Collective; the same on all ranks.
DeviceBounds measure_device(Communicator& comm, Device device, int64_t bytes);
// Returns what algbw could be at most, in GB/s, where all ranks share one device: an engine that stays on the device
// reads every input and writes every output there once; one that passes the host moves them over the link.
double device_bound(const DeviceBounds& bounds, const BenchKind& kind, int num_ranks, bool on_device);

}  // namespace herd::cli
