// A device of the tests: its memory can't be touched by the host, and its streams run late, in any order that their
// events allow. So a forgotten wait gives wrong bytes, and a schedule that reads device memory dies.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/error.h"

namespace herd::testing_support {

// What is kept to the end of the process on purpose, such as the blocks of a pool and what a failed group shares, is
// found here by a leak checker.
class InUse {
 public:
  static InUse& get() {
    static auto* const instance = new InUse;
    return *instance;
  }
  void add(const void* memory) {
    const std::lock_guard lock(mutex_);
    memory_.insert(memory);
  }
  void remove(const void* memory) {
    const std::lock_guard lock(mutex_);
    memory_.erase(memory);
  }

 private:
  std::mutex mutex_;
  std::set<const void*> memory_;
};

class LateDevice final : public DeviceDriver {
 public:
  // Returns the one of this process, and registers it. It lives as long as the process.
  static LateDevice& instance() {
    static auto* device = [] {
      auto* made = new LateDevice;
      register_device_driver(DeviceKind::kExtension, made);
      return made;
    }();
    return *device;
  }

  // Ends its thread, for instance before the process forks. The next job begins another one.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    stopping_ = false;
  }
  // The streams stand still from the next job on.
  void hang(bool hangs) {
    const std::lock_guard lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }
  void set_delay(std::chrono::microseconds longest) { longest_delay_ = longest; }

  std::byte* allocate(int64_t bytes) {
    const auto size = static_cast<size_t>((bytes + 4096) / 4096 * 4096);
    const int file = memfd_create("late_device", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) throw std::runtime_error("no device memory");
    void* seen = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
    void* real = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    const std::lock_guard lock(mutex_);
    memory_[static_cast<std::byte*>(seen)] = {static_cast<std::byte*>(real), size};
    return static_cast<std::byte*>(seen);
  }
  // As cudaFree() does, it waits for what is enqueued.
  void free(std::byte* memory) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] {
      return !running_ && std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s.second.empty(); });
    });
    const auto found = memory_.find(memory);
    munmap(found->second.first, found->second.second);
    munmap(memory, found->second.second);
    memory_.erase(found);
  }
  // Returns where the host finds what lies at an address of the device; other addresses stand for themselves.
  std::byte* real(const void* address) {
    auto* at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
    const std::lock_guard lock(mutex_);
    auto after = memory_.upper_bound(at);
    if (after == memory_.begin()) return at;
    --after;
    const auto offset = static_cast<size_t>(at - after->first);
    return offset < after->second.second ? after->second.first + offset : at;
  }

  int count() const override { return 4; }
  void* allocate_host(int64_t bytes) override {
    ++host_allocations;
    auto* const memory = new std::byte[static_cast<size_t>(bytes)];
    InUse::get().add(memory);
    return memory;
  }
  void free_host(void* memory) override {
    InUse::get().remove(memory);
    delete[] static_cast<std::byte*>(memory);
  }
  StreamHandle create_stream(int) override {
    const std::lock_guard lock(mutex_);
    auto* handle = reinterpret_cast<StreamHandle>(++last_stream_);
    streams_[handle];
    return handle;
  }
  void destroy_stream(int, StreamHandle) override {}  // what is enqueued there still runs
  void copy(void* to, const void* from, int64_t bytes, int, StreamHandle stream) override {
    enqueue(stream,
            {nullptr, [this, to, from, bytes] { std::memcpy(real(to), real(from), static_cast<size_t>(bytes)); }});
  }
  DeviceEventPtr record(int, StreamHandle stream) override {
    auto event = std::make_shared<Event>(*this);
    enqueue(stream, {nullptr, [event] { event->reach(); }});
    return event;
  }
  void call(int, StreamHandle stream, std::function<void()> function) override {
    enqueue(stream, {nullptr, std::move(function)});
  }

  // Ranks that are threads of this process share its memory and events as they are.
  void* allocate_shared(int64_t bytes, int) override { return allocate(bytes); }
  void free_shared(void* memory, int) override { free(static_cast<std::byte*>(memory)); }
  DeviceHandle export_shared(void* memory, int) override { return handle_of(memory); }
  void* open_shared(const DeviceHandle& handle, int) override {
    if (refuses_sharing) throw Error(Code::kBadConfig, "the late device shares nothing today");
    return address_in(handle);
  }
  void close_shared(void*, int) override {}
  std::unique_ptr<SharedDeviceEvent> make_shared_event(int) override {
    return std::make_unique<SharedEvent>(*this, std::make_shared<SharedEvent::Record>());
  }
  std::unique_ptr<SharedDeviceEvent> open_shared_event(const DeviceHandle& handle, int) override {
    return std::make_unique<SharedEvent>(*this,
                                         *static_cast<std::shared_ptr<SharedEvent::Record>*>(address_in(handle)));
  }

  // Runs a job in its place on a stream.
  void run_on(StreamHandle stream, std::function<void()> job) { enqueue(stream, {nullptr, std::move(job)}); }

  std::atomic<int> host_allocations{0};
  std::atomic<bool> refuses_sharing{false};

 private:
  struct Event final : DeviceEvent {
    explicit Event(LateDevice& owner) : device(owner) {}
    bool done() const override { return reached; }
    void wait() const override {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return reached.load(); });
    }
    void hold(StreamHandle stream) const override {
      device.enqueue(stream, {device.share(*this), [] {}});
    }
    void reach() {
      const std::lock_guard lock(mutex);
      reached = true;
      changed.notify_all();
    }
    LateDevice& device;
    std::shared_ptr<std::atomic<bool>> shared = std::make_shared<std::atomic<bool>>(false);
    std::atomic<bool>& reached = *shared;
    mutable std::mutex mutex;
    mutable std::condition_variable changed;
  };
  struct SharedEvent final : SharedDeviceEvent {
    struct Record {
      std::mutex mutex;
      std::shared_ptr<std::atomic<bool>> last;  // null: not recorded yet
    };
    SharedEvent(LateDevice& owner, std::shared_ptr<Record> of) : device(owner), record_of(std::move(of)) {
      InUse::get().add(this);
    }
    ~SharedEvent() override { InUse::get().remove(this); }
    DeviceHandle handle() const override { return handle_of(&record_of); }
    void record(StreamHandle stream) override {
      const auto reached = std::make_shared<std::atomic<bool>>(false);
      {
        const std::lock_guard lock(record_of->mutex);
        record_of->last = reached;
      }
      device.enqueue(stream, {nullptr, [reached] { *reached = true; }});
    }
    void hold(StreamHandle stream) override {
      const std::lock_guard lock(record_of->mutex);
      device.enqueue(stream, {record_of->last, [] {}});
    }
    LateDevice& device;
    mutable std::shared_ptr<Record> record_of;
  };
  struct Job {
    std::shared_ptr<std::atomic<bool>> after;  // null: nothing
    std::function<void()> run;
  };

  static DeviceHandle handle_of(const void* address) {
    DeviceHandle handle{};
    std::memcpy(handle.data(), &address, sizeof address);
    return handle;
  }
  static void* address_in(const DeviceHandle& handle) {
    void* address = nullptr;
    std::memcpy(&address, handle.data(), sizeof address);
    return address;
  }
  static std::shared_ptr<std::atomic<bool>> share(const Event& event) { return event.shared; }

  void enqueue(StreamHandle stream, Job job) {
    const std::lock_guard lock(mutex_);
    streams_[stream].push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }

  void run() {
    std::mt19937 random(5);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      std::vector<std::deque<Job>*> ready;
      for (auto& [handle, jobs] : streams_) {
        if (!hangs_ && !jobs.empty() && (jobs.front().after == nullptr || jobs.front().after->load()))
          ready.push_back(&jobs);
      }
      if (ready.empty()) {
        changed_.wait(lock);
        continue;
      }
      std::deque<Job>& jobs = *ready[random() % ready.size()];
      const Job job = std::move(jobs.front());
      jobs.pop_front();
      running_ = true;
      lock.unlock();
      if (random() % 4 == 0 && longest_delay_.count() > 0)
        std::this_thread::sleep_for(
            std::chrono::microseconds(random() % static_cast<uint32_t>(longest_delay_.count())));
      job.run();
      lock.lock();
      running_ = false;
      idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::thread thread_;
  bool stopping_ = false, hangs_ = false, running_ = false;
  std::chrono::microseconds longest_delay_{200};
  uintptr_t last_stream_ = 100;
  std::map<StreamHandle, std::deque<Job>> streams_;
  std::map<std::byte*, std::pair<std::byte*, size_t>> memory_;  // by address on the device: the host's address, bytes
};

}  // namespace herd::testing_support
