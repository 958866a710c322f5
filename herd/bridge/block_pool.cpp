#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>

#include "herd/bridge/block_pool_internal.h"

namespace herd {
namespace {

size_t plus_one_eighth(size_t bytes) { return bytes + bytes / 8; }

}  // namespace

// Blocks of at least four huge pages ask for huge pages: there are fewer faults, and streams do not stop at each small
// page.
void* BlockPool::allocate(size_t capacity) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = capacity >= 4 * kHugePage;
  const size_t alignment = huge ? kHugePage : 64, bytes = (capacity + kHeaderBytes + 63) / 64 * 64;
  void* base = nullptr;
  if (::posix_memalign(&base, alignment, bytes) != 0) throw std::bad_alloc();
  if (huge) ::madvise(base, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice, which the kernel may ignore
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
    held_ += bytes;
  }
  header(data).bytes = bytes;
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  return data;
}

void BlockPool::give(void* data) {
  const size_t capacity = header(data).capacity;
  if (capacity < kBig) return release(data);
  const std::lock_guard lock(mutex_);
  live_ -= header(data).bytes;
  kept_bytes_ += capacity;
  kept_.emplace(capacity, data);
}

void* BlockPool::reuse(size_t bytes) {
  const auto found = kept_.lower_bound(bytes);
  if (found == kept_.end() || found->first > plus_one_eighth(bytes)) return nullptr;
  void* data = found->second;
  kept_bytes_ -= found->first;
  kept_.erase(found);
  return data;
}

// Frees the smallest block that makes enough room, or else the largest. The next request of that size has to allocate.
void BlockPool::make_room(size_t bytes) {
  const size_t allowed = plus_one_eighth(std::max(peak_, live_ + bytes));
  while (!kept_.empty() && held_ + bytes > allowed) {
    const auto suffices = kept_.lower_bound(held_ + bytes - allowed);
    give_back(suffices == kept_.end() ? std::prev(kept_.end()) : suffices);
  }
}

void BlockPool::give_back(std::multimap<size_t, void*>::iterator kept) {
  held_ -= kept->first;
  kept_bytes_ -= kept->first;
  release(kept->second);
  kept_.erase(kept);
}

int64_t BlockPool::cached_bytes() {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(kept_bytes_);
}

void BlockPool::empty_cache() {
  const std::lock_guard lock(mutex_);
  while (!kept_.empty()) give_back(kept_.begin());
}

}  // namespace herd
