#include "herd/kernels/device_kernels.h"

#include <array>
#include <atomic>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/kernels/host_kernels.h"

namespace herd::kernels {
namespace {

std::array<std::atomic<DeviceKernels*>, 3>& kernel_tables() {  // by DeviceKind
  static std::array<std::atomic<DeviceKernels*>, 3> instance{};
  return instance;
}

}  // namespace

void register_device_kernels(DeviceKind kind, DeviceKernels* kernels) {
  kernel_tables()[static_cast<size_t>(kind)] = kernels;
}

DeviceKernels& device_kernels(DeviceKind kind) {
  if (kind == DeviceKind::kCpu) return host_kernels();
  DeviceKernels* kernels = kernel_tables()[static_cast<size_t>(kind)];
  if (kernels == nullptr) {
    device_driver(kind);  // loads the library that has both, or says why it can't
    kernels = kernel_tables()[static_cast<size_t>(kind)];
  }
  if (kernels == nullptr) throw Error(Code::kBadConfig, "no kernels of this kind of device are registered");
  return *kernels;
}

}  // namespace herd::kernels
