#include "herd/base/device_driver.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <mutex>

#include "herd/base/error.h"

namespace herd {
namespace {

constexpr size_t kNumKinds = 3;

std::array<std::atomic<DeviceDriver*>, kNumKinds>& drivers() {
  static std::array<std::atomic<DeviceDriver*>, kNumKinds> instance{};
  return instance;
}

// Returns the path of a library that lies beside this one.
std::string beside_this_library(const std::string& name) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&register_device_driver), &info) == 0 || info.dli_fname == nullptr) return name;
  const std::string own = info.dli_fname;
  const size_t slash = own.rfind('/');
  return slash == std::string::npos ? name : own.substr(0, slash + 1) + name;
}

// Returns why CUDA cannot be used; empty where it can. The library registers its driver and its kernels.
std::string load_cuda() {
  const std::string path = beside_this_library("libherd_cuda.so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return std::string("herd's library for CUDA can't be loaded: ") + dlerror() +
           "\n  fix: build herd where nvcc is found (CUDA toolkit 12 or newer), or device.kind = \"cpu\"";
  }
  using Register = const char* (*)();  // returns null, or why there is no device
  const auto register_cuda = reinterpret_cast<Register>(dlsym(library, "herd_register_cuda"));
  if (register_cuda == nullptr) return path + " has no herd_register_cuda: it is of another release of herd";
  const char* refusal = register_cuda();
  if (refusal == nullptr) return "";
  return std::string("CUDA: ") + refusal + "\n  fix: look at nvidia-smi, or device.kind = \"cpu\"";
}

}  // namespace

namespace {

[[noreturn]] void refuse_sharing() {
  throw Error(Code::kBadConfig, "this kind of device shares no memory between processes");
}

}  // namespace

DeviceFacts DeviceDriver::facts(int device) { return {"device", "device " + std::to_string(device), "", 0}; }
std::shared_ptr<void> DeviceDriver::make_current(int) { return nullptr; }
void* DeviceDriver::allocate_shared(int64_t, int) { refuse_sharing(); }
void DeviceDriver::free_shared(void*, int) {}
DeviceHandle DeviceDriver::export_shared(void*, int) { refuse_sharing(); }
void* DeviceDriver::open_shared(const DeviceHandle&, int) { refuse_sharing(); }
void DeviceDriver::close_shared(void*, int) {}
std::unique_ptr<SharedDeviceEvent> DeviceDriver::make_shared_event(int) { refuse_sharing(); }
std::unique_ptr<SharedDeviceEvent> DeviceDriver::open_shared_event(const DeviceHandle&, int) { refuse_sharing(); }

void register_device_driver(DeviceKind kind, DeviceDriver* driver) { drivers()[static_cast<size_t>(kind)] = driver; }

DeviceDriver& device_driver(DeviceKind kind) {
  if (kind == DeviceKind::kCuda) {
    static const std::string refusal = load_cuda();
    if (!refusal.empty()) throw Error(Code::kBadConfig, refusal);
  }
  DeviceDriver* driver = drivers()[static_cast<size_t>(kind)];
  if (driver == nullptr) throw Error(Code::kBadConfig, "no driver of this kind of device is registered");
  return *driver;
}

}  // namespace herd
