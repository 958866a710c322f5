#include "herd/bridge/host_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cstring>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/bridge/device_stream.h"

namespace herd {

at::Tensor host_zeros(int64_t elements, at::ScalarType type, at::Device device) {
  const auto bytes = static_cast<size_t>(elements) * c10::elementSize(type);
  if (bytes == 0) return at::empty({0}, type);
  if (!device.is_cpu()) {
    DeviceDriver& driver = device_driver(to_device(device).kind);
    void* const locked = driver.allocate_host(static_cast<int64_t>(bytes));
    std::memset(locked, 0, bytes);
    return at::from_blob(
        locked, {elements}, [&driver](void* address) { driver.free_host(address); }, type);
  }
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(Code::kStorage, "the host has no " + format_bytes(static_cast<double>(bytes)) +
                                    " for what is kept off the device\n  fix: fewer ranks on this host, or shards "
                                    "(strategy.zero)");
  }
  madvise(memory, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      memory, {elements}, [bytes](void* address) { munmap(address, bytes); }, type);
}

}  // namespace herd
