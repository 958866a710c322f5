#include "tests/device/later_streams.h"

#include <stdexcept>

#include "tests/device/later_device.h"
#include "tests/device/later_memory.h"

namespace herd::later {
namespace {

constexpr size_t kPoolStreams = 8;
constexpr uint64_t kMostPolledJobs = 4;

std::atomic<int64_t> num_synchronisations{0};

struct Observer {
  std::mutex mutex;
  std::function<void(const char*)> function;
};
Observer& observer() {
  static auto* instance = new Observer;
  return *instance;
}

}  // namespace

Streams& Streams::get() {
  static auto* instance = new Streams;  // tensors of static lifetime are freed after everything else
  return *instance;
}

void Streams::seed(uint64_t seed) {
  const std::lock_guard lock(mutex_);
  random_.seed(seed);
}

void Streams::set_num_devices(int count) {
  const std::lock_guard lock(mutex_);
  if (!default_streams_.empty()) return;
  num_devices_ = count;
  pools_.resize(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) {
    streams_.push_back(std::make_unique<Stream>(Stream{.device = device}));
    default_streams_.push_back(streams_.back().get());
  }
}

Stream* Streams::default_stream(int device) {
  const std::lock_guard lock(mutex_);
  return default_streams_.at(static_cast<size_t>(device));
}

Stream* Streams::create(int device) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_unique<Stream>(Stream{.device = device}));
  return streams_.back().get();
}

void Streams::destroy(Stream* stream) {
  const std::lock_guard lock(mutex_);
  stream->destroyed = true;
}

Stream* Streams::from_pool(int device) {
  const std::lock_guard lock(mutex_);
  auto& pool = pools_.at(static_cast<size_t>(device));
  if (pool.size() < kPoolStreams) {
    streams_.push_back(std::make_unique<Stream>(Stream{.device = device}));
    pool.push_back(streams_.back().get());
    return pool.back();
  }
  return pool[next_of_pool_++ % kPoolStreams];
}

void Streams::enqueue(Stream* stream, std::function<void()> run) {
  const std::lock_guard lock(mutex_);
  if (stream->destroyed) throw std::logic_error("work for a stream of device later that is destroyed");
  stream->jobs.push_back({.run = std::move(run)});
}

PointPtr Streams::record(Stream* stream) {
  const std::lock_guard lock(mutex_);
  auto point = std::make_shared<Point>();
  stream->jobs.push_back({.reaches = point});
  return point;
}

void Streams::hold(Stream* stream, PointPtr point) {
  const std::lock_guard lock(mutex_);
  stream->jobs.push_back({.waits_for = std::move(point)});
}

void Streams::draw_priorities() {
  for (const auto& stream : streams_) stream->priority = static_cast<uint32_t>(random_());
}

Streams::Runner::Runner(Streams& of) : streams(of), lock(of.mutex_) { ++streams.num_runners_; }

Streams::Runner::~Runner() {
  if (!lock.owns_lock()) lock.lock();
  if (--streams.num_runners_ == 0) Memory::get().close();
}

void Streams::wait(const PointPtr& point) {
  Runner runner(*this);
  std::unique_lock<std::mutex>& lock = runner.lock;
  // Half of the waits run some streams ahead of all others; equal chances would seldom let one fall far behind.
  const bool by_priority = random_() % 2 == 0;
  if (by_priority) draw_priorities();
  while (!point->reached) {
    if (!advance(lock, by_priority)) throw std::logic_error("streams of device later wait for each other");
  }
  throw_error();
}

bool Streams::poll(const PointPtr& point) {
  Runner runner(*this);
  std::unique_lock<std::mutex>& lock = runner.lock;
  for (uint64_t jobs = random_() % (kMostPolledJobs + 1); jobs > 0 && !running_ && !point->reached; --jobs) {
    if (!advance(lock, false)) break;
  }
  throw_error();
  return point->reached;
}

void Streams::run_all() {
  Runner runner(*this);
  std::unique_lock<std::mutex>& lock = runner.lock;
  while (advance(lock, false)) {
  }
  throw_error();
}

uint64_t Streams::draw(uint64_t end) {
  const std::lock_guard lock(mutex_);
  return random_() % end;
}

bool Streams::advance(std::unique_lock<std::mutex>& lock, bool by_priority) {
  if (running_) {
    job_done_.wait(lock);
    return true;
  }
  Stream* stream = choose(by_priority);
  if (stream == nullptr) return false;
  run(lock, stream);
  return true;
}

Stream* Streams::choose(bool by_priority) {
  Stream* chosen = nullptr;
  uint64_t num_ready = 0;
  for (const auto& stream : streams_) {
    if (stream->jobs.empty()) continue;
    const PointPtr& awaited = stream->jobs.front().waits_for;
    if (awaited != nullptr && !awaited->reached) continue;
    ++num_ready;
    const bool better = by_priority ? chosen == nullptr || stream->priority > chosen->priority  //
                                    : random_() % num_ready == 0;
    if (better) chosen = stream.get();
  }
  return chosen;
}

void Streams::run(std::unique_lock<std::mutex>& lock, Stream* stream) {
  Job job = std::move(stream->jobs.front());
  stream->jobs.pop_front();
  if (job.reaches != nullptr) {
    job.reaches->at = std::chrono::steady_clock::now();
    job.reaches->reached = true;
    job_done_.notify_all();
  }
  if (job.run == nullptr) return;
  running_ = true;
  Memory::get().open();
  lock.unlock();
  std::string error;
  try {
    job.run();
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  job.run = nullptr;  // frees what it holds, which may enqueue
  lock.lock();
  if (error_.empty()) error_ = error;
  running_ = false;
  job_done_.notify_all();
}

void Streams::throw_error() {
  if (error_.empty()) return;
  const std::string error = std::move(error_);
  error_.clear();
  throw std::runtime_error("a job of device later failed: " + error);
}

void note_synchronisation(const char* reason) {
  ++num_synchronisations;
  std::function<void(const char*)> function;
  {
    const std::lock_guard lock(observer().mutex);
    function = observer().function;
  }
  if (function != nullptr) function(reason);
}

int64_t synchronisations() { return num_synchronisations; }

void on_synchronisation(std::function<void(const char*)> function) {
  const std::lock_guard lock(observer().mutex);
  observer().function = std::move(function);
}

void run_all() { Streams::get().run_all(); }

}  // namespace herd::later
