#include "herd/memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <string>
#include <system_error>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/units.h"

namespace herd {
namespace {

// A file size limit (ulimit -f) answers with a signal that ends the process; here it has to be an error.
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

}  // namespace

SharedMemory::SharedMemory(int descriptor, int64_t bytes) : bytes_(bytes), descriptor_(descriptor) {
  void* mapped = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    throw_errno(Code::kStorage, "map " + format_bytes(static_cast<double>(bytes)) + " of shared memory", error);
  }
  data_ = static_cast<std::byte*>(mapped);
}

SharedMemory SharedMemory::create(const std::string& label, int64_t bytes) {
  const int descriptor = memfd_create(label.c_str(), MFD_CLOEXEC);
  if (descriptor < 0) throw_errno(Code::kStorage, "create shared memory \"" + label + "\"", errno);
  FileSizeSignalBlocked blocked;
  if (ftruncate(descriptor, bytes) != 0) {
    const int error = errno;
    close(descriptor);
    throw_too_little(bytes, error);
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
  int error = 0;
  do {
    error = posix_fallocate(descriptor_, begin, bytes);
  } while (error == EINTR);
  if (error != 0) throw_too_little(bytes, error);
}

void SharedMemory::close_descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace herd
