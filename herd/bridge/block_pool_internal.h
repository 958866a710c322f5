// Memory blocks with a size header, and the pool of big ones (budget_allocator.h says why and how much).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace herd {

class BlockPool {
 public:
  static constexpr size_t kBig = size_t{256} << 10;

  struct Header {
    size_t bytes;     // asked for
    size_t capacity;  // of the block, without the header
    uint8_t label;
  };
  // 64-byte aligned memory after its header. Throws std::bad_alloc.
  void* take(size_t bytes);
  void give(void* data);
  static Header& header(void* data) { return *reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes); }

  int64_t cached_bytes();
  void empty_cache();

 private:
  static constexpr size_t kHeaderBytes = 64;
  static void* allocate(size_t capacity);
  static void release(void* data);
  void* reuse(size_t bytes);  // null if nothing fits
  void make_room(size_t bytes);
  void give_back(std::multimap<size_t, void*>::iterator kept);

  std::mutex mutex_;
  std::multimap<size_t, void*> kept_;  // by capacity
  size_t kept_bytes_ = 0;
  size_t held_ = 0;             // capacities of big blocks, live and kept
  size_t live_ = 0, peak_ = 0;  // bytes asked for of big blocks
};

}  // namespace herd
