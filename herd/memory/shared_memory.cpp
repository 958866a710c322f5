#include "herd/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>
#include <system_error>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/memory/populate.h"

namespace herd {
namespace {

constexpr int64_t kHugePageBytes = 2 << 20;
constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers lack; older kernels refuse it

// Blocks SIGXFSZ, so that a file size limit (ulimit -f) makes an error instead of ending the process.
class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlocked() {
    const timespec now = {0, 0};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_, before_;
  bool was_pending_ = false;
};

[[noreturn]] void throw_too_little(int64_t wanted, int error) {
  throw Error(Code::kStorage, "too little shared memory: " + format_bytes(static_cast<double>(wanted)) +
                                  " wanted, about " + format_bytes(static_cast<double>(available_memory())) +
                                  " available (" + std::generic_category().message(error) + ", errno " +
                                  std::to_string(error) +
                                  ")\n  fix: allocate less per rank, run fewer ranks on this host, or raise the memory "
                                  "limit of the container or `ulimit -f`");
}

// Maps the memory at an address that is a multiple of a huge page, so that it can be mapped as huge pages.
void* map_aligned(int descriptor, size_t bytes) {
  constexpr auto kAlignment = static_cast<size_t>(kHugePageBytes);
  if (bytes < kAlignment) return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const size_t reserved_bytes = bytes + kAlignment;
  void* reserved = mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return reserved;
  auto* begin = static_cast<std::byte*>(reserved);
  const size_t bytes_before = (kAlignment - reinterpret_cast<uintptr_t>(begin) % kAlignment) % kAlignment;
  const size_t bytes_after =
      reserved_bytes - bytes_before - static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kPageBytes));
  if (bytes_before > 0) munmap(begin, bytes_before);
  if (bytes_after > 0) munmap(begin + reserved_bytes - bytes_after, bytes_after);
  void* mapped = mmap(begin + bytes_before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(begin + bytes_before, reserved_bytes - bytes_before - bytes_after);
    errno = error;
  }
  return mapped;
}

// Without a descriptor, the range begins and ends at pages.
bool allocate(std::byte* data, int descriptor, int64_t begin, int64_t bytes, int& error) {
  if (descriptor < 0) return populate(data + begin, bytes, error);
  do {
    error = posix_fallocate(descriptor, begin, bytes);
  } while (error == EINTR);
  return error == 0;
}

// Turns the whole 2 MiB blocks of the range into huge pages: fewer TLB misses make large collectives up to an eighth
// faster. A block needs one page before it can be collapsed. Where blocks take long, memory is fragmented, and the rest
// keeps small pages.
void collapse(std::byte* data, int descriptor, int64_t begin, int64_t bytes) {
  constexpr int64_t kStretchBytes = 16 * kHugePageBytes;
  constexpr auto kMaxStretchTime = std::chrono::milliseconds(32);
  const int64_t end = (begin + bytes) / kHugePageBytes * kHugePageBytes;
  for (int64_t at = round_up(begin, kHugePageBytes); at < end; at += kStretchBytes) {
    const auto start = std::chrono::steady_clock::now();
    const int64_t stop = std::min(end, at + kStretchBytes);
    int error = 0;
    for (int64_t block = at; block < stop; block += kHugePageBytes) {
      if (!allocate(data, descriptor, block, kPageBytes, error)) return;
    }
    if (madvise(data + at, static_cast<size_t>(stop - at), kCollapse) != 0) return;
    if (std::chrono::steady_clock::now() - start > kMaxStretchTime) return;
  }
}

}  // namespace

SharedMemory::SharedMemory(int descriptor, int64_t bytes) : bytes_(bytes), descriptor_(descriptor) {
  void* mapped = map_aligned(descriptor, static_cast<size_t>(bytes));
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    throw_errno(Code::kStorage, "map " + format_bytes(static_cast<double>(bytes)) + " of shared memory", error);
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory SharedMemory::create(const std::string& label, int64_t bytes) {
  const int descriptor = memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) throw_errno(Code::kStorage, "create shared memory \"" + label + "\"", errno);
  FileSizeSignalBlocked blocked;
  if (ftruncate(descriptor, bytes) != 0) {
    const int error = errno;
    close(descriptor);
    throw_too_little(bytes, error);
  }
  // Seals the size: a peer that shrank the memory would end those that map it by SIGBUS.
  if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(descriptor);
    throw_errno(Code::kStorage, "seal the size of shared memory \"" + label + "\"", error);
  }
  return SharedMemory(descriptor, bytes);
}

SharedMemory SharedMemory::adopt(int descriptor, int64_t bytes) { return SharedMemory(descriptor, bytes); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  close_descriptor();
}

void SharedMemory::commit(int64_t begin, int64_t bytes) {
  if (bytes == 0) return;
  if (bytes > available_memory()) throw_too_little(bytes, ENOMEM);
  FileSizeSignalBlocked blocked;
  collapse(data_, descriptor_, begin, bytes);
  int error = 0;
  if (!allocate(data_, descriptor_, begin, bytes, error)) throw_too_little(bytes, error);
}

bool SharedMemory::commits_without_descriptor() {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  int error = 0;
  const bool populated = populate(static_cast<std::byte*>(page), kPageBytes, error);
  munmap(page, kPageBytes);
  return populated;
}

void SharedMemory::close_descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace herd
