#include "herd/runtime/device_lane.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace herd::runtime {
namespace {

c10::Stream current_stream_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// A point in a stream whose time the device notes.
std::unique_ptr<c10::Event> record(const c10::Stream& stream) {
  auto event = std::make_unique<c10::Event>(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(stream);
  return event;
}

// Relates the device's clock to the host's, and knows the stream that computes: the current one of the thread that
// makes a lane.
struct Origin {
  explicit Origin(const c10::Stream& stream)
      : compute_stream(current_stream_of(stream.device())), event(record(stream)) {
    event->synchronize();
    at = Clock::now();
  }
  Clock::time_point time_of(const c10::Event& later) const {
    const std::chrono::duration<double, std::milli> elapsed(event->elapsedTime(later));
    return at + std::chrono::duration_cast<Clock::duration>(elapsed);
  }
  const c10::Stream compute_stream;
  std::unique_ptr<c10::Event> event;
  Clock::time_point at;
};

// The end of a job: reached once the job has returned, the device has done what it enqueued, and the operation that it
// started and those of jobs before it are done. It is reached at once where the job has thrown.
class DeviceJobEvent final : public Event {
 public:
  DeviceJobEvent(std::shared_ptr<DeviceJobEvent> previous, std::shared_ptr<const Origin> origin)
      : previous_(std::move(previous)), origin_(std::move(origin)) {}

  bool done() const override {
    const std::lock_guard lock(mutex_);
    if (!returned_ || error_) return returned_;
    return end_->query() && (!operation_ || operation_->done()) && (!previous_ || previous_->done());
  }
  void wait() override {
    await_return();
    if (const auto earlier = previous()) earlier->wait();
    if (operation_) operation_->wait();
    if (!end_->query()) end_->synchronize();
    const std::lock_guard lock(mutex_);
    previous_ = nullptr;  // a long run must not keep a long chain of events
  }
  void hold() override {
    await_return();
    if (const auto earlier = previous(); earlier && !earlier->done()) earlier->hold();
    if (operation_) operation_->hold();
    const c10::Stream stream = current_stream_of(c10::Device(end_->device_type(), end_->device_index()));
    end_->block(stream);
    if (stream == origin_->compute_stream) note_held();
  }
  bool held() const override { return is_held_ || (done() && !returned_with_error()); }
  std::optional<Clock::time_point> began_at() const override { return time_of(begin_); }
  Clock::time_point ended_at() const override {
    const auto at = time_of(end_);
    const auto of_device = at ? *at : returned_at_;
    return operation_ ? std::max(of_device, operation_->ended_at()) : of_device;
  }
  bool failed() {
    try {
      wait();
      return false;
    } catch (...) {
      return true;
    }
  }
  // Tells whether what the job started is more than work on the lane's stream. REQUIRES that it has returned.
  bool has_operation() const { return operation_ != nullptr || error_; }
  std::shared_ptr<DeviceJobEvent> previous() const {
    const std::lock_guard lock(mutex_);
    return previous_;
  }
  // Runs the job on the current stream of `device`, after the events.
  void run(c10::Device device, const std::vector<EventPtr>& after, const Job& job) {
    EventPtr operation;
    std::exception_ptr error;
    std::unique_ptr<c10::Event> begin, end;
    try {
      if (const auto last = previous(); last && last->returned_with_error()) last->wait();  // throws
      for (const EventPtr& earlier : after) earlier->hold();
      begin = record(current_stream_of(device));
      operation = job();
      end = record(current_stream_of(device));
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    begin_ = std::move(begin), end_ = std::move(end);
    is_held_ = !error && !operation && !previous_ && current_stream_of(device) == origin_->compute_stream;
    operation_ = std::move(operation);
    error_ = error;
    returned_at_ = Clock::now();
    returned_ = true;
    changed_.notify_all();
  }

 private:
  // The stream that computes waits for this job, and so for those before it.
  void note_held() {
    std::shared_ptr<DeviceJobEvent> earlier;
    for (DeviceJobEvent* event = this; event != nullptr && !event->is_held_.exchange(true); event = earlier.get())
      earlier = event->previous();
  }
  void await_return() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return returned_; });
    if (error_) std::rethrow_exception(error_);
  }
  bool returned_with_error() const {
    const std::lock_guard lock(mutex_);
    return returned_ && error_;
  }
  std::optional<Clock::time_point> time_of(const std::unique_ptr<c10::Event>& event) const {
    if (!event || !event->query()) return std::nullopt;
    return origin_->time_of(*event);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_held_ = false;
  bool returned_ = false;  // what follows, but for previous_, is written before it and not after
  std::unique_ptr<c10::Event> begin_, end_;
  EventPtr operation_;
  std::exception_ptr error_;
  Clock::time_point returned_at_;
  std::shared_ptr<DeviceJobEvent> previous_;
  std::shared_ptr<const Origin> origin_;
};

void wait_for_all(std::shared_ptr<DeviceJobEvent> last) {
  for (; last; last = last->previous()) last->failed();  // a job that threw did not wait for earlier ones
}

// Runs jobs on the calling thread.
class DeviceInlineLane final : public Lane {
 public:
  explicit DeviceInlineLane(c10::Device device)
      : device_(device), origin_(std::make_shared<Origin>(current_stream_of(device))) {}
  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    // The stream orders jobs that only enqueue, so a job's own event says that those before it are done, too.
    const bool needs_last = last_ && last_->has_operation() && !(last_->done() && !last_->failed());
    auto event = std::make_shared<DeviceJobEvent>(needs_last ? last_ : nullptr, origin_);
    event->run(device_, after, job);
    last_ = event;
    return event;
  }
  void drain() override { wait_for_all(last_); }

 private:
  const c10::Device device_;
  std::shared_ptr<const Origin> origin_;
  std::shared_ptr<DeviceJobEvent> last_;
};

// Runs jobs on a thread and a stream of its own.
class DeviceThreadLane final : public Lane {
 public:
  DeviceThreadLane(const std::string& name, c10::Device device)
      : name_(name.substr(0, 15)),
        device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
        origin_(std::make_shared<Origin>(stream_)) {}
  ~DeviceThreadLane() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }
  EventPtr submit(std::vector<EventPtr> after, Job job) override {
    const std::lock_guard lock(mutex_);
    if (last_ && last_->done()) last_->failed();  // it drops the events of earlier jobs
    auto event = std::make_shared<DeviceJobEvent>(last_, origin_);
    last_ = event;
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    queue_.push_back({std::move(after), std::move(job), event});
    idle_ = false;
    changed_.notify_all();
    return event;
  }
  void drain() override {
    std::shared_ptr<DeviceJobEvent> last;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return idle_; });
      last = last_;
    }
    wait_for_all(last);
  }

 private:
  struct Entry {
    std::vector<EventPtr> after;
    Job job;
    std::shared_ptr<DeviceJobEvent> event;
  };

  void serve() {
    pthread_setname_np(pthread_self(), name_.c_str());
    const c10::StreamGuard guard(stream_);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Entry entry = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      entry.event->run(device_, entry.after, entry.job);
      entry = {};  // frees what the job held before the lane counts as idle
      lock.lock();
      idle_ = queue_.empty();
      if (idle_) changed_.notify_all();
    }
  }

  const std::string name_;
  const c10::Device device_;
  const c10::Stream stream_;
  std::shared_ptr<const Origin> origin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  bool idle_ = true;
  bool stop_ = false;
  std::shared_ptr<DeviceJobEvent> last_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Lane> device_inline_lane(c10::Device device) { return std::make_unique<DeviceInlineLane>(device); }
std::unique_ptr<Lane> device_thread_lane(const std::string& name, c10::Device device) {
  return std::make_unique<DeviceThreadLane>(name, device);
}

}  // namespace herd::runtime
