// Defines the key-value store that ranks meet through: the control plane implements it (herd/launch), and ranks that
// are threads use MemoryStore. Values are bytes, keys are short text.   Threads: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace herd {

using SteadyTime = std::chrono::steady_clock::time_point;

class Store {
 public:
  virtual ~Store() = default;
  // Sets the key, whether it existed or not, and wakes who waits for it.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists and returns its value. Throws kTimeout with the key; kPeerLost or kAborted if the job
  // failed meanwhile.
  virtual std::string get(const std::string& key, SteadyTime deadline) = 0;
  // Adds to an integer, which the store keeps as decimal text (0 where the key does not exist), and returns the sum.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  // Does nothing where the key does not exist.
  virtual void erase(const std::string& key) = 0;
};

// Serves ranks that are threads of one process.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, SteadyTime deadline) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void erase(const std::string& key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace herd
