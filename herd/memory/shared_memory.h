// Holds memory that several processes of a host map. It is a memfd, so nothing has a name in a file system, and nothing
// is left behind when processes are killed. Pages exist after commit() only, so a machine that is full gives an error
// there, never a SIGBUS later.
// Threads: commit() of different ranges from any; the rest from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace herd {

class SharedMemory {
 public:
  SharedMemory() = default;
  // Reserves `bytes` of address space, which are zero when committed. `label` shows in /proc/PID/maps. Throws kStorage.
  static SharedMemory create(const std::string& label, int64_t bytes);
  // Maps what another process created and sent, and owns the descriptor. Throws kStorage.
  static SharedMemory adopt(int descriptor, int64_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Makes the pages of [begin, begin + bytes) real, huge ones where the kernel has them at hand. Throws kStorage with
  // the bytes wanted and the bytes available.
  void commit(int64_t begin, int64_t bytes);
  // Closes the descriptor; the mapping stays. REQUIRES that nothing is sent afterwards; and that nothing is committed
  // but pages, and where the kernel does that.
  void close_descriptor();
  static bool commits_without_descriptor();  // Linux 5.14 and newer do

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }

 private:
  SharedMemory(int descriptor, int64_t bytes);

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int descriptor_ = -1;
};

// Returns the bytes this process may still take before the machine or its memory control group is full.
int64_t available_memory();

inline constexpr int64_t kPageBytes = 4096;
constexpr int64_t round_up(int64_t bytes, int64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace herd
