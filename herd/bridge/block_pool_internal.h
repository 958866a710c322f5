// Hands out memory blocks with a header before them, and keeps big ones for use again. budget_allocator.h says why, and
// how much is kept. Owns the blocks that it keeps; a block in use belongs to whoever took it. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace herd {

class BlockPool {
 public:
  static constexpr size_t kBig = size_t{256} << 10;  // bytes from which a block is kept for use again

  struct Header {
    size_t bytes;     // bytes that the caller asked for
    size_t capacity;  // bytes of the block without the header
    uint8_t label;    // the caller's MemoryLabel
  };
  // Returns uninitialised memory on a 64-byte line, with its header before it. Throws std::bad_alloc.
  void* take(size_t bytes);
  void give(void* data);  // takes back what take() returned
  // Returns the header of a block in use, which the caller may write.
  static Header& header(void* data) { return *reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes); }

  int64_t cached_bytes();  // returns the bytes of kept blocks, without headers
  void empty_cache();      // gives kept blocks back to the system

 private:
  static constexpr size_t kHeaderBytes = 64;
  static void* allocate(size_t capacity);
  static void release(void* data);
  void* reuse(size_t bytes);     // returns a kept block of bytes to 9/8 bytes; null if there is none
  void make_room(size_t bytes);  // gives kept blocks back so that `bytes` more stay within what may be held
  void give_back(std::multimap<size_t, void*>::iterator kept);

  std::mutex mutex_;
  std::multimap<size_t, void*> kept_;  // kept blocks by capacity
  size_t kept_bytes_ = 0;              // sum of their capacities
  size_t held_ = 0;                    // sum of the capacities of big blocks, in use and kept
  size_t live_ = 0, peak_ = 0;         // bytes asked for in big blocks, now and at most so far
};

}  // namespace herd
