// herd's driver of the device "later".
#include <chrono>
#include <thread>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"
#include "tests/device/later_device.h"
#include "tests/device/later_memory.h"
#include "tests/device/later_torch.h"

namespace herd::later {
namespace {

constexpr uint64_t kLongestDelayUs = 200;

class Event final : public DeviceEvent {
 public:
  Event(int device, PointPtr point) : device_(device), point_(std::move(point)) {}
  bool done() const override { return Streams::get().poll(point_); }
  void wait() const override {
    note_synchronisation("DeviceEvent::wait");
    Streams::get().wait(point_);
  }
  void hold(StreamHandle stream) const override { Streams::get().hold(stream_of_handle(device_, stream), point_); }

 private:
  int device_;
  PointPtr point_;
};

// The thread that runs functions once a point is reached: it waits for it as a host thread does, a little later.
class Caller {
 public:
  Caller() : thread_([this] { run(); }) { thread_.detach(); }
  void add(PointPtr point, std::function<void()> function) {
    const std::lock_guard lock(mutex_);
    calls_.push_back({std::move(point), std::move(function)});
    added_.notify_one();
  }

 private:
  struct Call {
    PointPtr point;
    std::function<void()> function;
  };
  [[noreturn]] void run() {
    for (;;) {
      Call call = next();
      std::this_thread::sleep_for(std::chrono::microseconds(Streams::get().draw(kLongestDelayUs)));
      Streams::get().wait(call.point);
      call.function();
    }
  }
  Call next() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [&] { return !calls_.empty(); });
    Call call = std::move(calls_.front());
    calls_.pop_front();
    return call;
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Call> calls_;
  std::thread thread_;
};

class Driver final : public DeviceDriver {
 public:
  int count() const override { return Streams::get().num_devices(); }
  void* allocate_host(int64_t bytes) override { return Memory::get().allocate_host(static_cast<size_t>(bytes)); }
  void free_host(void* memory) override { Memory::get().free_host(memory); }
  StreamHandle create_stream(int device) override { return Streams::get().create(device); }
  void destroy_stream(int, StreamHandle stream) override { Streams::get().destroy(static_cast<Stream*>(stream)); }
  void copy(void* to, const void* from, int64_t bytes, int device, StreamHandle stream) override {
    require_reachable(to, bytes);
    require_reachable(from, bytes);
    Streams::get().enqueue(stream_of_handle(device, stream),
                           [=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  }
  DeviceEventPtr record(int device, StreamHandle stream) override {
    return std::make_shared<Event>(device, Streams::get().record(stream_of_handle(device, stream)));
  }
  void call(int device, StreamHandle stream, std::function<void()> function) override {
    static auto* caller = new Caller;
    caller->add(Streams::get().record(stream_of_handle(device, stream)), std::move(function));
  }

 private:
  static void require_reachable(const void* memory, int64_t bytes) {
    if (bytes == 0 || Memory::get().contains(memory) || Memory::get().is_host(memory, static_cast<size_t>(bytes))) {
      return;
    }
    throw Error(Code::kBadConfig,
                "device later copies only between its memory and page-locked memory\n  fix: allocate_host");
  }
};

}  // namespace

Stream* stream_of_handle(int device, StreamHandle stream) {
  return stream == nullptr ? Streams::get().default_stream(device) : static_cast<Stream*>(stream);
}

void install(uint64_t seed, int num_devices) {
  static const bool once = [&] {
    Streams::get().set_num_devices(num_devices);
    register_guard();
    register_operations();
    register_kernels();
    register_device_driver(DeviceKind::kExtension, new Driver);
    return true;
  }();
  static_cast<void>(once);
  Streams::get().seed(seed);
}

c10::Device device(int index) { return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)}; }

}  // namespace herd::later
