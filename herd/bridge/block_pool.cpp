#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>

#include "herd/bridge/block_pool_internal.h"

namespace herd {

// Blocks of several huge pages ask for them: fewer faults, and streams that do not stop at each small page.
void* BlockPool::allocate(size_t capacity) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = capacity >= 4 * kHugePage;
  const size_t alignment = huge ? kHugePage : 64, bytes = (capacity + kHeaderBytes + 63) / 64 * 64;
  void* base = nullptr;
  if (::posix_memalign(&base, alignment, bytes) != 0) throw std::bad_alloc();
  if (huge) ::madvise(base, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish: refusal costs nothing
  void* data = static_cast<char*>(base) + kHeaderBytes;
  header(data) = {capacity, capacity, 0};
  return data;
}

void BlockPool::release(void* data) { std::free(static_cast<char*>(data) - kHeaderBytes); }

void* BlockPool::take(size_t bytes) {
  if (bytes < kBig) return allocate(bytes);
  const std::lock_guard lock(mutex_);
  void* data = reuse(bytes);
  if (data == nullptr) {
    make_room(bytes);
    data = allocate(bytes);
  }
  header(data).bytes = bytes;
  live_big_ += header(data).capacity;
  peak_big_ = std::max(peak_big_, live_big_);
  return data;
}

void BlockPool::give(void* data) {
  const size_t capacity = header(data).capacity;
  if (capacity < kBig) return release(data);
  const std::lock_guard lock(mutex_);
  live_big_ -= capacity;
  kept_bytes_ += capacity;
  kept_.emplace(capacity, data);
}

void* BlockPool::reuse(size_t bytes) {
  const auto found = kept_.lower_bound(bytes);
  if (found == kept_.end() || found->first > bytes + bytes / 8) return nullptr;
  void* data = found->second;
  kept_bytes_ -= found->first;
  kept_.erase(found);
  return data;
}

void BlockPool::make_room(size_t bytes) {
  const size_t allowed = std::max(peak_big_, live_big_ + bytes);
  while (!kept_.empty() && live_big_ + kept_bytes_ + bytes > allowed) {
    const auto largest = std::prev(kept_.end());
    kept_bytes_ -= largest->first;
    release(largest->second);
    kept_.erase(largest);
  }
}

int64_t BlockPool::kept_bytes() {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(kept_bytes_);
}

void BlockPool::give_back_kept() {
  const std::lock_guard lock(mutex_);
  for (const auto& [capacity, data] : kept_) release(data);
  kept_.clear();
  kept_bytes_ = 0;
}

}  // namespace herd
