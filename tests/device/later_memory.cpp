#include "tests/device/later_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace herd::later {
namespace {

constexpr size_t kArena = size_t{1} << 36;  // addresses; a page takes memory once it is written
constexpr size_t kAlignment = 512;
constexpr size_t kPage = 4096;
constexpr int kNan = 0xff;  // of every floating-point type, and -1 of integers

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Memory& Memory::get() {
  static auto* instance = new Memory;
  return *instance;
}

Memory::Memory() {
  void* arena = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) throw std::bad_alloc();
  begin_ = static_cast<char*>(arena);
  end_ = begin_ + kArena;
  top_ = begin_;
}

char* Memory::take(size_t bytes, size_t requested, Stream* stream) {
  const std::lock_guard lock(mutex_);
  char* memory = top_;
  size_t size = bytes;
  const auto found = free_.lower_bound(bytes);
  if (found != free_.end() && found->first <= bytes + bytes / 4) {
    size = found->first;
    memory = found->second;
    free_.erase(found);
  } else if (bytes > static_cast<size_t>(end_ - memory)) {
    throw std::bad_alloc();
  } else {
    top_ = memory + bytes;
  }
  live_[memory] = {memory, size, static_cast<int64_t>(requested), stream};
  MemoryUse& use = use_[stream->device];
  use.bytes += static_cast<int64_t>(requested);
  use.peak = std::max(use.peak, use.bytes);
  return memory;
}

void* Memory::allocate(size_t bytes, Stream* stream) {
  const size_t requested = bytes;
  bytes = round_up(std::max<size_t>(bytes, 1), kAlignment);
  char* const memory = take(bytes, requested, stream);
  // Memory that is used again holds NaNs since it was freed; what lies in it before the device wrote there does too.
  Streams::get().enqueue(stream, [memory, bytes] { std::memset(memory, kNan, bytes); });
  return memory;
}

void Memory::use_on(const void* memory, Stream* stream) {
  const std::lock_guard lock(mutex_);
  auto after = live_.upper_bound(static_cast<const char*>(memory));
  if (after == live_.begin()) return;
  Block& block = (--after)->second;
  if (memory >= block.memory + block.bytes || stream == block.stream) return;
  if (std::find(block.used_on.begin(), block.used_on.end(), stream) == block.used_on.end()) {
    block.used_on.push_back(stream);
  }
}

void Memory::free(void* memory) {
  static Stream* const reclaiming = Streams::get().create(0);
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(static_cast<char*>(memory));
    if (found == live_.end()) std::abort();
    block = std::move(found->second);
    live_.erase(found);
    use_[block.stream->device].bytes -= block.requested;
  }
  const auto reclaim = [this, memory = block.memory, bytes = block.bytes] {
    std::memset(memory, kNan, bytes);
    const std::lock_guard lock(mutex_);
    free_.emplace(bytes, memory);
  };
  if (block.used_on.empty()) return Streams::get().enqueue(block.stream, reclaim);
  block.used_on.push_back(block.stream);
  for (Stream* stream : block.used_on) Streams::get().hold(reclaiming, Streams::get().record(stream));
  Streams::get().enqueue(reclaiming, reclaim);
}

MemoryUse Memory::use(int device) {
  const std::lock_guard lock(mutex_);
  return use_[device];
}

void Memory::reset_peak(int device) {
  const std::lock_guard lock(mutex_);
  use_[device].peak = use_[device].bytes;
}

bool Memory::contains(const void* memory) const { return memory >= begin_ && memory < end_; }

void* Memory::allocate_host(size_t bytes) {
  void* memory = std::aligned_alloc(kPage, round_up(std::max<size_t>(bytes, 1), kPage));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, kNan, bytes);
  const std::lock_guard lock(mutex_);
  host_[static_cast<char*>(memory)] = bytes;
  return memory;
}

void Memory::free_host(void* memory) {
  Streams::get().run_all();  // as CUDA does
  {
    const std::lock_guard lock(mutex_);
    if (host_.erase(static_cast<char*>(memory)) == 0) throw std::logic_error("this memory is not page-locked");
  }
  std::free(memory);
}

bool Memory::is_host(const void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto* address = static_cast<const char*>(memory);
  auto after = host_.upper_bound(address);
  if (after == host_.begin()) return false;
  const auto& [begin, size] = *--after;
  return address + bytes <= begin + size;
}

void Memory::open() {
  char* const end = begin_ + round_up(static_cast<size_t>(top_ - begin_), kPage);
  if (end <= opened_) return;
  char* const begin = opened_ == nullptr ? begin_ : opened_;
  if (mprotect(begin, static_cast<size_t>(end - begin), PROT_READ | PROT_WRITE) != 0) std::abort();
  opened_ = end;
}

void Memory::close() {
  if (opened_ == nullptr) return;
  if (mprotect(begin_, static_cast<size_t>(opened_ - begin_), PROT_NONE) != 0) std::abort();
  opened_ = nullptr;
}

}  // namespace herd::later
