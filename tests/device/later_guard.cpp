#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/device/later_device.h"
#include "tests/device/later_memory.h"
#include "tests/device/later_torch.h"

namespace herd::later {
namespace {

constexpr c10::DeviceType kLater = c10::DeviceType::PrivateUse1;

thread_local c10::DeviceIndex current_device = 0;
thread_local std::vector<Stream*> current_streams;  // of each device; null is the default stream

c10::DeviceIndex index_of(c10::Device device) { return device.has_index() ? device.index() : current_device; }

// An id is the stream's address; 0 is the default stream.
c10::Stream torch_stream(c10::DeviceIndex device, Stream* stream) {
  const bool is_default = stream == nullptr || stream == Streams::get().default_stream(device);
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kLater, device),
                     is_default ? 0 : reinterpret_cast<c10::StreamId>(stream));
}

struct Event {
  PointPtr point;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kLater; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return c10::Device(kLater, current_device); }
  void setDevice(c10::Device device) const override {
    const c10::DeviceIndex index = index_of(device);
    TORCH_CHECK(index >= 0 && index < deviceCount(), "there is no device later:", static_cast<int>(index));
    current_device = index;
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = index_of(device); }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(Streams::get().num_devices());
  }

  c10::Stream getStream(c10::Device device) const override {
    return torch_stream(index_of(device), current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return torch_stream(index_of(device), nullptr); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return torch_stream(index_of(device), Streams::get().from_pool(index_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return torch_stream(index_of(device), Streams::get().create(index_of(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_streams.at(static_cast<size_t>(stream.device_index())) = stream_of(stream);
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return stream.id() == 0 ? nullptr : stream_of(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Streams::get().poll(Streams::get().record(stream_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    note_synchronisation("synchronizeStream");
    Streams::get().wait(Streams::get().record(stream_of(stream)));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    note_synchronisation("synchronizeDevice");
    Streams::get().run_all();
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->point = Streams::get().record(stream_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    Streams::get().hold(stream_of(stream), static_cast<Event*>(event)->point);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Streams::get().poll(static_cast<Event*>(event)->point);
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    note_synchronisation("synchronizeEvent");
    Streams::get().wait(static_cast<Event*>(event)->point);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    const auto at = [](void* event) {
      const PointPtr& point = static_cast<Event*>(event)->point;
      TORCH_CHECK(point->reached, "an event is not reached yet");
      return point->at;
    };
    return std::chrono::duration<double, std::milli>(at(second) - at(first)).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() != nullptr) Memory::get().use_on(data.get(), stream_of(stream));
  }
};

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kLater, current_device);
    if (bytes == 0) return {nullptr, device};
    void* memory = Memory::get().allocate(bytes, current_stream(current_device));
    return {memory, memory, &free, device};
  }
  static void free(void* memory) { Memory::get().free(memory); }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() != nullptr) Memory::get().use_on(data.get(), stream_of(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryUse use = Memory::get().use(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.requested_bytes[0].current = stats.allocated_bytes[0].current = use.bytes;
    stats.requested_bytes[0].peak = stats.allocated_bytes[0].peak = use.peak;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { Memory::get().reset_peak(device); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    Streams::get().enqueue(current_stream(current_device), [=] { std::memcpy(to, from, bytes); });
  }
};

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = Memory::get().allocate_host(bytes);
    return {memory, memory, &free, c10::kCPU};
  }
  static void free(void* memory) { Memory::get().free_host(memory); }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(Streams::get().num_devices()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current_device, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* memory) const override { return Memory::get().is_host(memory); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* allocator = new HostAllocator;
    return allocator;
  }
  c10::Device getDeviceFromPtr(void* memory) const override {
    TORCH_CHECK(Memory::get().contains(memory), "this address is not of device later");
    return {kLater, current_device};
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const size_t copied = std::min(bytes, storage.nbytes());
    const Guard guard;
    const c10::Device before = guard.exchangeDevice(storage.device());
    c10::DataPtr grown = storage.allocator()->allocate(bytes);
    if (copied > 0) {
      Streams::get().enqueue(current_stream(current_device),
                             [to = grown.get(), from = storage.data(), copied] { std::memcpy(to, from, copied); });
    }
    storage.set_data_ptr_noswap(std::move(grown));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
    guard.setDevice(before);
  }
};

}  // namespace

Stream* current_stream(c10::DeviceIndex device) {
  current_streams.resize(static_cast<size_t>(Streams::get().num_devices()));
  Stream* stream = current_streams.at(static_cast<size_t>(device));
  return stream == nullptr ? Streams::get().default_stream(device) : stream;
}

Stream* stream_of(const c10::Stream& stream) {
  if (stream.id() == 0) return Streams::get().default_stream(stream.device_index());
  return reinterpret_cast<Stream*>(stream.id());
}

void register_guard() {
  c10::register_privateuse1_backend("later");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kLater, new DeviceAllocator);
  static const c10::impl::DeviceGuardImplRegistrar registrar(kLater, new Guard);
}

}  // namespace herd::later
