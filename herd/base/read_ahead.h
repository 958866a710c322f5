// Makes the values of keys that follow each other on a thread of its own, before they are asked for: a loader that
// reads the batches of the next steps while this one computes.
//   ReadAhead<int64_t, Batch> batches([](int64_t step) { return read(step); }, [](int64_t step) { return step + 1; },
//   2); for (int64_t step = 0; step < 100; ++step) train(batches.take(step));
// Another key than the one that follows begins anew. Threads: take() by one at a time; the function runs on the
// loader's thread alone.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace herd {

template <class Key, class Value>
class ReadAhead {
 public:
  // `read` makes a value, `next` says which key follows one; at most `depth` values wait. REQUIRES depth >= 1.
  ReadAhead(std::function<Value(const Key&)> read, std::function<Key(const Key&)> next, int depth)
      : read_(std::move(read)), next_(std::move(next)), depth_(static_cast<size_t>(depth)) {}
  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();  // after the value that is being read
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Returns the value of `key`, and lets the loader go on with those after it. Throws what the function threw for it.
  Value take(const Key& key) {
    std::unique_lock lock(mutex_);
    if (next_to_take_ != key) {  // forgets what was read, and what is being read
      ready_.clear();
      next_to_read_ = key;
      ++sequence_;
      changed_.notify_all();
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.wait(lock, [this] { return !ready_.empty(); });
    Result result = std::move(ready_.front());
    ready_.pop_front();
    next_to_take_ = next_(key);
    changed_.notify_all();
    lock.unlock();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(*result.value);
  }

 private:
  struct Result {
    std::optional<Value> value = {};
    std::exception_ptr error = nullptr;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stops_ || ready_.size() < depth_; });
      if (stops_) return;
      const Key key = *next_to_read_;
      const int sequence = sequence_;
      lock.unlock();
      Result result;
      try {
        result.value = read_(key);
      } catch (...) {
        result.error = std::current_exception();
      }
      lock.lock();
      if (sequence != sequence_) continue;
      ready_.push_back(std::move(result));
      next_to_read_ = next_(key);
      changed_.notify_all();
    }
  }

  const std::function<Value(const Key&)> read_;
  const std::function<Key(const Key&)> next_;
  const size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Result> ready_;  // of next_to_take_ and the keys after it
  std::optional<Key> next_to_take_, next_to_read_;
  int sequence_ = 0;  // of keys that follow each other
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace herd
