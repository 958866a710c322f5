#include "herd/runtime/stream_lane.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>
#include <optional>

#include "herd/base/error.h"

namespace herd::runtime {
namespace {

class StreamEvent final : public Event {
 public:
  StreamEvent(const c10::impl::VirtualGuardImpl& guard, const c10::Stream& stream, std::exception_ptr error)
      : guard_(guard), device_(stream.device_index()), error_(error) {
    if (!error_) guard_.record(&event_, stream, device_, c10::EventFlag::PYTORCH_DEFAULT);
  }
  ~StreamEvent() override {
    if (event_) guard_.destroyEvent(event_, device_);
  }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  bool done() const override {
    const bool is = error_ || guard_.queryEvent(event_);
    if (is) note();
    return is;
  }
  void wait() override {
    if (error_) std::rethrow_exception(error_);
    guard_.synchronizeEvent(event_);
    note();
  }
  Clock::time_point ended_at() const override { return *seen_; }  // when it was first seen to be done
  // Later work of `stream` starts after this event, without blocking the host.
  void hold(const c10::Stream& stream) const {
    if (error_) std::rethrow_exception(error_);
    guard_.block(event_, stream);
  }

 private:
  void note() const {
    std::lock_guard lock(mutex_);
    if (!seen_) seen_ = Clock::now();
  }
  c10::impl::VirtualGuardImpl guard_;
  c10::DeviceIndex device_;
  mutable std::mutex mutex_;
  mutable std::optional<Clock::time_point> seen_;
  void* event_ = nullptr;
  std::exception_ptr error_;
};

class StreamLane final : public Lane {
 public:
  explicit StreamLane(c10::Device device) : guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device)) {}

  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    if (failed_) return std::make_shared<StreamEvent>(guard_, stream_, failed_);
    const c10::Stream before = guard_.exchangeStream(stream_);
    try {
      for (const EventPtr& event : after) {
        if (auto* on_device = dynamic_cast<StreamEvent*>(event.get()))
          on_device->hold(stream_);
        else
          event->wait();
      }
      if (EventPtr rest = job()) rest->wait();
    } catch (...) {
      failed_ = std::current_exception();
    }
    auto event = std::make_shared<StreamEvent>(guard_, stream_, failed_);
    guard_.exchangeStream(before);
    return event;
  }
  void drain() override { guard_.synchronizeStream(stream_); }

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
  std::exception_ptr failed_;
};

}  // namespace

std::unique_ptr<Lane> stream_lane(c10::Device device) {
  if (!c10::impl::hasDeviceGuardImpl(device.type()))
    throw Error(Code::kBadConfig, "this build of libtorch has no device \"" + device.str() +
                                      "\"\n  fix: use the cpu, or a build of libtorch for that device");
  return std::make_unique<StreamLane>(device);
}

}  // namespace herd::runtime
