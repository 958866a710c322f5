#include "herd/comm/page_locked_pool.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace herd::comm {
namespace {

constexpr int64_t kLeastBlock = 64 << 10;
constexpr int64_t kGrain = 8 << 20;  // larger blocks are multiples of it, smaller ones powers of two

int64_t block_of(int64_t bytes) {
  if (bytes > kGrain) return (bytes + kGrain - 1) / kGrain * kGrain;
  return std::max(kLeastBlock, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
}

}  // namespace

PageLockedPool& PageLockedPool::of(DeviceKind kind) {
  static std::mutex mutex;
  static std::array<PageLockedPool*, 3> pools{};  // never destroyed: threads of drivers may still give blocks back
  DeviceDriver& driver = device_driver(kind);
  const std::lock_guard lock(mutex);
  PageLockedPool*& pool = pools[static_cast<size_t>(kind)];
  if (pool == nullptr || &pool->driver_ != &driver) pool = new PageLockedPool(driver);
  return *pool;
}

std::shared_ptr<std::byte> PageLockedPool::take(int64_t bytes) {
  if (bytes <= 0) return nullptr;
  const int64_t block = block_of(bytes);
  std::byte* memory = nullptr;
  {
    std::unique_lock lock(mutex_);
    trim(lock);
    const auto found = unused_.find(block);
    if (found != unused_.end()) {
      memory = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) unused_.erase(found);
      unused_bytes_ -= block;
    }
  }
  if (memory == nullptr) memory = static_cast<std::byte*>(driver_.allocate_host(block));
  return {memory, [this, block](std::byte* unused) { give_back(unused, block); }};
}

int64_t PageLockedPool::unused_bytes() const {
  const std::lock_guard lock(mutex_);
  return unused_bytes_;
}

void PageLockedPool::give_back(std::byte* memory, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  unused_[bytes].push_back(memory);
  unused_bytes_ += bytes;
}

// Frees the largest blocks, until no more than kKept bytes are unused.
void PageLockedPool::trim(std::unique_lock<std::mutex>& lock) {
  while (unused_bytes_ > kKept) {
    const auto largest = std::prev(unused_.end());
    std::byte* memory = largest->second.back();
    largest->second.pop_back();
    unused_bytes_ -= largest->first;
    if (largest->second.empty()) unused_.erase(largest);
    lock.unlock();
    driver_.free_host(memory);
    lock.lock();
  }
}

}  // namespace herd::comm
