// The driver of device_driver.h for CUDA, and the function that registers it together with the kernels.
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "herd/kernels/cuda/cuda_kernels.cuh"
#include "herd/kernels/cuda/launch.cuh"

namespace herd::kernels::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(Code::kBadConfig, std::string("CUDA, ") + what + ": " + cudaGetErrorString(status));
}

namespace {

// Events are used again: making one takes longer than recording it.
class EventPool {
 public:
  cudaEvent_t take(int device) {
    {
      const std::lock_guard lock(mutex_);
      if (static_cast<size_t>(device) >= free_.size()) free_.resize(static_cast<size_t>(device) + 1);
      std::vector<cudaEvent_t>& events = free_[static_cast<size_t>(device)];
      if (!events.empty()) {
        const cudaEvent_t event = events.back();
        events.pop_back();
        return event;
      }
    }
    cudaEvent_t event = nullptr;  // the device is current
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreate");
    return event;
  }
  void give_back(int device, cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    free_[static_cast<size_t>(device)].push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<cudaEvent_t>> free_;  // by device
};

EventPool& event_pool() {
  static auto* instance = new EventPool;  // lives as long as the process: events may be released at its end
  return *instance;
}

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(int device, cudaStream_t stream) : device_(device), event_(event_pool().take(device)) {
    check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  ~CudaEvent() override { event_pool().give_back(device_, event_); }
  bool done() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // it is no error: forgets it
      return false;
    }
    check(status, "cudaEventQuery");
    return true;
  }
  void wait() const override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  void hold(StreamHandle stream) const override {
    const CurrentDevice current(device_);
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0), "cudaStreamWaitEvent");
  }

 private:
  int device_;
  cudaEvent_t event_;
};

class CudaSharedEvent final : public SharedDeviceEvent {
 public:
  explicit CudaSharedEvent(int device) : device_(device) {
    const CurrentDevice current(device);
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventInterprocess), "cudaEventCreate");
  }
  CudaSharedEvent(const DeviceHandle& handle, int device) : device_(device) {
    const CurrentDevice current(device);
    cudaIpcEventHandle_t theirs;
    static_assert(sizeof theirs == sizeof handle);
    std::memcpy(&theirs, handle.data(), sizeof theirs);
    check(cudaIpcOpenEventHandle(&event_, theirs), "cudaIpcOpenEventHandle");
  }
  ~CudaSharedEvent() override {
    const CurrentDevice current(device_);
    cudaEventDestroy(event_);
  }
  DeviceHandle handle() const override {
    cudaIpcEventHandle_t mine;
    check(cudaIpcGetEventHandle(&mine, event_), "cudaIpcGetEventHandle");
    DeviceHandle handle;
    std::memcpy(handle.data(), &mine, sizeof mine);
    return handle;
  }
  void record(StreamHandle stream) override {
    const CurrentDevice current(device_);
    check(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)), "cudaEventRecord");
  }
  void hold(StreamHandle stream) override {
    const CurrentDevice current(device_);
    check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_, 0), "cudaStreamWaitEvent");
  }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

class CudaDriver final : public DeviceDriver {
 public:
  int count() const override {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
  }
  void* allocate_host(int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t status =
        cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw Error(Code::kBadConfig, "the host has no " + std::to_string(bytes) +
                                        " bytes of page-locked memory: " + cudaGetErrorString(status) +
                                        "\n  fix: fewer ranks on this host, or shards (strategy.zero)");
    }
    return memory;
  }
  void free_host(void* memory) override { check(cudaFreeHost(memory), "cudaFreeHost"); }
  StreamHandle create_stream(int device) override {
    const CurrentDevice current(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
  }
  void destroy_stream(int device, StreamHandle stream) override {
    const CurrentDevice current(device);
    check(cudaStreamDestroy(static_cast<cudaStream_t>(stream)), "cudaStreamDestroy");
  }
  void copy(void* to, const void* from, int64_t bytes, int device, StreamHandle stream) override {
    if (bytes == 0) return;
    const CurrentDevice current(device);
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
          "cudaMemcpyAsync");
  }
  DeviceEventPtr record(int device, StreamHandle stream) override {
    const CurrentDevice current(device);
    return std::make_shared<CudaEvent>(device, static_cast<cudaStream_t>(stream));
  }
  void call(int device, StreamHandle stream, std::function<void()> function) override {
    const CurrentDevice current(device);
    auto owned = std::make_unique<std::function<void()>>(std::move(function));
    const auto run = [](void* data) {
      const std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()>*>(data));
      (*work)();
    };
    check(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), run, owned.get()), "cudaLaunchHostFunc");
    owned.release();
  }
  DeviceFacts facts(int device) override {
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties");
    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    constexpr char kDigits[] = "0123456789abcdef";
    std::string id;
    for (const char byte : found.uuid.bytes) {
      id += kDigits[static_cast<unsigned char>(byte) >> 4];
      id += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    return {found.name, id, "driver " + version_text(driver) + ", runtime " + version_text(runtime),
            static_cast<int64_t>(found.totalGlobalMem)};
  }
  std::shared_ptr<void> make_current(int device) override { return std::make_shared<CurrentDevice>(device); }
  void* allocate_shared(int64_t bytes, int device) override {
    const CurrentDevice current(device);
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (status != cudaSuccess) cudaGetLastError();
    check(status, "cudaMalloc");
    return memory;
  }
  void free_shared(void* memory, int device) override {
    const CurrentDevice current(device);
    check(cudaFree(memory), "cudaFree");
  }
  DeviceHandle export_shared(void* memory, int device) override {
    const CurrentDevice current(device);
    cudaIpcMemHandle_t mine;
    const cudaError_t status = cudaIpcGetMemHandle(&mine, memory);
    if (status != cudaSuccess) cudaGetLastError();
    check(status, "cudaIpcGetMemHandle");
    DeviceHandle handle;
    static_assert(sizeof mine == sizeof handle);
    std::memcpy(handle.data(), &mine, sizeof mine);
    return handle;
  }
  void* open_shared(const DeviceHandle& handle, int device) override {
    const CurrentDevice current(device);
    cudaIpcMemHandle_t theirs;
    std::memcpy(&theirs, handle.data(), sizeof theirs);
    void* memory = nullptr;
    const cudaError_t status = cudaIpcOpenMemHandle(&memory, theirs, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) cudaGetLastError();
    check(status, "cudaIpcOpenMemHandle");
    return memory;
  }
  void close_shared(void* memory, int device) override {
    const CurrentDevice current(device);
    check(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
  }
  std::unique_ptr<SharedDeviceEvent> make_shared_event(int device) override {
    return std::make_unique<CudaSharedEvent>(device);
  }
  std::unique_ptr<SharedDeviceEvent> open_shared_event(const DeviceHandle& handle, int device) override {
    return std::make_unique<CudaSharedEvent>(handle, device);
  }
};

class CudaKernels final : public DeviceKernels {
 public:
  void rms_norm(const OnStream& on, const RmsNormCall& call) override { cuda::rms_norm(on, call); }
  void rms_norm_backward(const OnStream& on, const RmsNormBackwardCall& call) override {
    cuda::rms_norm_backward(on, call);
  }
  void dropout(const OnStream& on, const DropoutCall& call) override { cuda::dropout(on, call); }
  void adamw(const OnStream& on, const AdamWCall& call) override { cuda::adamw(on, call); }
  void sgd(const OnStream& on, const SgdCall& call) override { cuda::sgd(on, call); }
  void sum_of_squares(const OnStream& on, const SumOfSquaresCall& call) override { cuda::sum_of_squares(on, call); }
  void clip(const OnStream& on, const ClipCall& call) override { cuda::clip(on, call); }
  void first_non_finite(const OnStream& on, const FirstNonFiniteCall& call) override {
    cuda::first_non_finite(on, call);
  }
  void hash(const OnStream& on, const HashCall& call) override { cuda::hash(on, call); }
  void split_float(const OnStream& on, const SplitFloatCall& call) override { cuda::split_float(on, call); }
  void join_float(const OnStream& on, const JoinFloatCall& call) override { cuda::join_float(on, call); }
  void reduce(const OnStream& on, const ReductionCall& call) override { cuda::reduce(on, call); }
  void rotary(const OnStream& on, const RotaryCall& call) override { cuda::rotary(on, call); }
  void gated(const OnStream& on, const GatedCall& call) override { cuda::gated(on, call); }
  void gated_backward(const OnStream& on, const GatedBackwardCall& call) override { cuda::gated_backward(on, call); }
  void cross_entropy(const OnStream& on, const CrossEntropyCall& call) override { cuda::cross_entropy(on, call); }
  void embedding_gradient(const OnStream& on, const EmbeddingGradientCall& call) override {
    cuda::embedding_gradient(on, call);
  }
  void encode(const OnStream& on, const EncodeCall& call) override { cuda::encode(on, call); }
  void decode_sum(const OnStream& on, const DecodeSumCall& call) override { cuda::decode_sum(on, call); }
  void encode_sum(const OnStream& on, const EncodeSumCall& call) override { cuda::encode_sum(on, call); }
};

}  // namespace
}  // namespace herd::kernels::cuda

// Registers the driver and the kernels. Returns null, or why there is no device.
extern "C" __attribute__((visibility("default"))) const char* herd_register_cuda() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  if (count == 0) return "this machine has no GPU";
  static herd::kernels::cuda::CudaDriver driver;
  static herd::kernels::cuda::CudaKernels kernels;
  herd::register_device_driver(herd::DeviceKind::kCuda, &driver);
  herd::kernels::register_device_kernels(herd::DeviceKind::kCuda, &kernels);
  return nullptr;
}
