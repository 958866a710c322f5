#include "herd/bridge/device_stream.h"

#include <ATen/Context.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/base/log.h"

namespace herd {
namespace {

// torch's operations on CUDA register themselves when their library is loaded, which nothing of herd links. It must
// come before torch first asks for them: it remembers the answer.
void load_torch_cuda() {
  if (c10::impl::hasDeviceGuardImpl(c10::kCUDA)) return;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw Error(Code::kBadConfig, std::string("this libtorch has no CUDA: ") + dlerror() +
                                      "\n  fix: a CUDA build of torch (Torch_DIR, scripts/setup), or "
                                      "device.kind = \"cpu\"");
  }
}

// Lets attention take cuDNN's kernels where they can, which are the faster ones on Hopper and later.
void prefer_cudnn_attention() {
  const at::SDPBackend order[] = {at::SDPBackend::cudnn_attention, at::SDPBackend::flash_attention,
                                  at::SDPBackend::efficient_attention, at::SDPBackend::math,
                                  at::SDPBackend::overrideable};
  std::vector<int64_t> numbers;
  for (const at::SDPBackend one : order) numbers.push_back(static_cast<int64_t>(one));
  at::globalContext().setSDPPriorityOrder(numbers);
}

}  // namespace

Device to_device(c10::Device device) {
  const auto kind = [&] {
    switch (device.type()) {
      case c10::kCPU:
        return DeviceKind::kCpu;
      case c10::kCUDA:
        return DeviceKind::kCuda;
      case c10::kPrivateUse1:
        return DeviceKind::kExtension;
      default:
        throw Error(Code::kBadConfig, "herd has no driver for device " + device.str());
    }
  }();
  return {kind, device.has_index() ? device.index() : 0};
}

StreamHandle handle_of(const c10::Stream& stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type()).getStreamNativeHandle(stream);
}

StreamHandle current_stream(c10::Device device) {
  if (device.is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return guard.getStreamNativeHandle(guard.getStream(device));
}

kernels::DeviceKernels& kernels_of(const at::Tensor& tensor) {
  return kernels::device_kernels(to_device(tensor.device()).kind);
}

kernels::OnStream on_stream(const at::Tensor& tensor) {
  return {to_device(tensor.device()).index, current_stream(tensor.device())};
}

void synchronize(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

std::string found_device_kind() {
  try {
    open_device("cuda", 0);
    return "cuda";
  } catch (const Error& error) {
    log_debug("no GPU is used: " + error.message());
    return "cpu";
  }
}

c10::Device open_device(const std::string& kind, int index) {
  if (kind == "cpu") return c10::kCPU;
  const c10::DeviceType type = kind == "cuda" ? c10::kCUDA : c10::kPrivateUse1;
  const int count = device_driver(to_device(c10::Device(type, 0)).kind).count();
  if (count == 0) {
    throw Error(Code::kBadConfig,
                "device.kind = \"" + kind + "\", but this machine has none\n  fix: device.kind = \"cpu\", or \"auto\"");
  }
  if (type == c10::kCUDA) load_torch_cuda();
  at::globalContext().lazyInitDevice(type);
  if (type == c10::kCUDA) prefer_cudnn_attention();
  const c10::Device device(type, static_cast<c10::DeviceIndex>(index % count));
  c10::impl::VirtualGuardImpl(type).setDevice(device);
  return device;
}

}  // namespace herd
