// The abstract key-value store that ranks meet through: the control plane implements it (herd/launch), tests use
// MemoryStore. Values are bytes; keys are short text. Threads: every method from any thread.
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
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists. Throws kTimeout naming the key, kPeerLost or kAborted if the job failed meanwhile.
  virtual std::string get(const std::string& key, SteadyTime deadline) = 0;
  // Adds to an integer (absent = 0) and returns the new value.
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  virtual void erase(const std::string& key) = 0;
};

// For ranks that are threads of one process.
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
