#include "herd/base/store.h"

#include "herd/base/error.h"

namespace herd {

void MemoryStore::set(const std::string& key, const std::string& value) {
  std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& key, SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); })) {
    throw Error(Code::kTimeout, "store: nobody set \"" + key + "\" before the deadline");
  }
  return values_[key];
}

int64_t MemoryStore::add(const std::string& key, int64_t delta) {
  std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + delta;
  value = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

void MemoryStore::erase(const std::string& key) {
  std::lock_guard lock(mutex_);
  values_.erase(key);
}

}  // namespace herd
