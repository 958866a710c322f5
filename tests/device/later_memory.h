// Memory of the device "later": pages that the host may not touch while no job runs; and the host's page-locked
// memory, which it knows by address.   Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "tests/device/later_streams.h"

namespace herd::later {

struct Block {
  char* memory = nullptr;
  size_t bytes = 0;
  int64_t requested = 0;              // of them
  Stream* stream = nullptr;           // in whose order it is allocated and freed
  std::vector<Stream*> used_on = {};  // others that use it
};

struct MemoryUse {
  int64_t bytes = 0, peak = 0;  // that are asked for and not freed
};

class Memory {
 public:
  static Memory& get();

  void* allocate(size_t bytes, Stream* stream);
  void free(void* memory);
  // Lets the block that holds this address stay until what is enqueued on `stream` when it is freed is done.
  void use_on(const void* memory, Stream* stream);
  bool contains(const void* memory) const;

  MemoryUse use(int device);
  void reset_peak(int device);

  void* allocate_host(size_t bytes);
  void free_host(void* memory);
  bool is_host(const void* memory, size_t bytes = 1);  // page-locked

  void open();  // lets this process touch the memory of the device, for a job
  void close();

 private:
  Memory();
  char* take(size_t bytes, size_t requested, Stream* stream);

  std::mutex mutex_;
  char* begin_ = nullptr;
  char* end_ = nullptr;
  std::atomic<char*> top_{nullptr};
  char* opened_ = nullptr;
  std::map<const char*, Block> live_;
  std::multimap<size_t, char*> free_;
  std::map<int, MemoryUse> use_;
  std::map<const char*, size_t> host_;
};

}  // namespace herd::later
