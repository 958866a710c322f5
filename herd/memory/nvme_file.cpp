#include "herd/memory/nvme_file.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"

namespace herd {
namespace {

constexpr std::string_view kMagic = "herd nvme 1\n";
constexpr char kPathFix[] = "\n  fix: memory.nvme_path = a folder on a drive of this host, with room";

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

struct FreeBlock {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBlock = std::unique_ptr<std::byte, FreeBlock>;
AlignedBlock aligned_block() {
  AlignedBlock block(static_cast<std::byte*>(std::aligned_alloc(kNvmeBlock, kNvmeBlock)));
  if (!block) throw std::bad_alloc();
  std::memset(block.get(), 0, kNvmeBlock);
  return block;
}

// Tells whether a request may simply be made again.
bool is_passing(int error) { return error == EINTR || error == EAGAIN; }

}  // namespace

class NvmeFile::Ring {
 public:
  // Returns null and sets `error` where io_uring is refused.
  static std::unique_ptr<Ring> make(int depth, int& error) {
    auto ring = std::make_unique<Ring>();
    error = -io_uring_queue_init(static_cast<unsigned>(depth), &ring->ring_, 0);
    ring->is_open_ = error == 0;
    return ring->is_open_ ? std::move(ring) : nullptr;
  }
  ~Ring() {
    if (is_open_) io_uring_queue_exit(&ring_);
  }
  io_uring* get() { return &ring_; }
  void wait_for(int64_t answers) {
    for (io_uring_cqe* answer = nullptr; answers > 0;) {
      const int error = -io_uring_wait_cqe(&ring_, &answer);
      if (error != 0 && !is_passing(error)) return;
      if (error != 0) continue;
      io_uring_cqe_seen(&ring_, answer);
      --answers;
    }
  }

 private:
  io_uring ring_ = {};
  bool is_open_ = false;
};

NvmeFile::NvmeFile(Options options) : options_(std::move(options)) {
  HERD_CHECK(options_.bytes % kNvmeBlock == 0 && options_.chunk % kNvmeBlock == 0, "a file of parts of blocks");
  open_file();
  try {
    check_owner();
    reserve();
    write_header();
  } catch (...) {
    ::close(fd_);
    throw;
  }
  int refused = 0;
  if (options_.try_ring) ring_ = Ring::make(options_.depth, refused);
  if (!ring_)
    notes_.push_back("no io_uring here (" + std::string(options_.try_ring ? std::strerror(refused) : "not tried") +
                     "): files are read and written one request at a time");
}

NvmeFile::~NvmeFile() {
  if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
  ::unlink(options_.path.c_str());
  ::close(fd_);
}

void NvmeFile::open_file() {
  std::error_code error;
  std::filesystem::create_directories(options_.path.parent_path(), error);
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  const auto open_with = [&](int more) { return ::open(options_.path.c_str(), kFlags | more, 0600); };
  if (options_.try_direct) fd_ = open_with(O_DIRECT);
  if (fd_ < 0) {
    fd_ = open_with(0);
    if (fd_ >= 0)
      notes_.push_back("no O_DIRECT in " + options_.path.parent_path().string() +
                       ": reads and writes go through the page cache");
  }
  if (fd_ < 0)
    throw Error(Code::kStorage,
                "can't open " + printable(options_.path.string()) + ": " + std::strerror(errno) + kPathFix);
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(fd_);
  throw Error(Code::kBadConfig, printable(options_.path.string()) +
                                    " is in use by another process\n  fix: memory.nvme_path = a folder of this run's "
                                    "own, or end that process");
}

// Refuses a file that is not herd's, or another run's: a mistyped folder must not cost what lies there.
void NvmeFile::check_owner() {
  struct stat status = {};
  if (::fstat(fd_, &status) != 0 || status.st_size == 0) return;
  const AlignedBlock block = aligned_block();
  const ssize_t got = ::pread(fd_, block.get(), kNvmeBlock, 0);
  const std::string_view header(reinterpret_cast<const char*>(block.get()),
                                static_cast<size_t>(std::max<ssize_t>(0, got)));
  const std::string path = printable(options_.path.string());
  if (!header.starts_with(kMagic)) {
    throw Error(Code::kBadConfig, path +
                                      " is no file that herd keeps values in\n  fix: memory.nvme_path = another "
                                      "folder, or remove that file");
  }
  const std::string_view lines = header.substr(kMagic.size());
  const std::string run(lines.substr(0, lines.find('\n')));
  if (run == options_.run) return;
  throw Error(Code::kBadConfig, path + " belongs to run " + printable(run) + ", this is run " + options_.run +
                                    "\n  fix: memory.nvme_path = another folder; or, if that run won't go on, remove "
                                    "the file");
}

void NvmeFile::reserve() {
  const int64_t size = kNvmeBlock + options_.bytes;
  if (::ftruncate(fd_, 0) == 0 && ::fallocate(fd_, 0, 0, size) == 0) return;
  if (errno == EOPNOTSUPP && ::ftruncate(fd_, size) == 0) {
    notes_.push_back("can't reserve room in " + options_.path.parent_path().string() +
                     ": a full drive shows when it is written");
    return;
  }
  const int error = errno;
  struct statvfs drive = {};
  const bool known = ::fstatvfs(fd_, &drive) == 0;
  ::unlink(options_.path.c_str());
  throw Error(
      Code::kStorage,
      "no room for " + bytes_text(size) + " in " + printable(options_.path.string()) + ": " + std::strerror(error) +
          (known ? ", " + bytes_text(static_cast<int64_t>(drive.f_bavail * drive.f_frsize)) + " are free" : "") +
          kPathFix);
}

void NvmeFile::write_header() {
  const AlignedBlock block = aligned_block();
  std::string text = std::string(kMagic) + options_.run + "\n" + options_.contents;
  if (text.size() >= kNvmeBlock) text.resize(kNvmeBlock - 1);
  std::memcpy(block.get(), text.data(), text.size());
  ssize_t wrote = ::pwrite(fd_, block.get(), kNvmeBlock, 0);
  if (wrote < 0 && errno == EINVAL) {  // some file systems take the flag and refuse the request
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT);
    notes_.push_back("no O_DIRECT in " + options_.path.parent_path().string() +
                     ": reads and writes go through the page cache");
    wrote = ::pwrite(fd_, block.get(), kNvmeBlock, 0);
  }
  if (wrote != kNvmeBlock) fail(Direction::kWrite, 0, kNvmeBlock, wrote < 0 ? errno : 0);
}

void NvmeFile::read(int64_t offset, std::span<std::byte> to) {
  transfer(Direction::kRead, offset, to.data(), static_cast<int64_t>(to.size()));
}

void NvmeFile::write(int64_t offset, std::span<const std::byte> from) {
  transfer(Direction::kWrite, offset, const_cast<std::byte*>(from.data()), static_cast<int64_t>(from.size()));
}

void NvmeFile::transfer(Direction direction, int64_t offset, std::byte* memory, int64_t size) {
  HERD_CHECK(offset % kNvmeBlock == 0 && size % kNvmeBlock == 0 &&
                 reinterpret_cast<uintptr_t>(memory) % kNvmeBlock == 0 && offset + size <= options_.bytes,
             "bytes [" + std::to_string(offset) + ", " + std::to_string(offset + size) + ") of a file of " +
                 std::to_string(options_.bytes) + ", memory included, must be whole blocks");
  if (ring_)
    transfer_in_ring(direction, kNvmeBlock + offset, memory, size);
  else
    transfer_by_calls(direction, kNvmeBlock + offset, memory, size);
}

void NvmeFile::transfer_by_calls(Direction direction, int64_t at, std::byte* memory, int64_t size) {
  for (int64_t done = 0; done < size;) {
    const auto count = static_cast<size_t>(std::min(options_.chunk, size - done));
    const ssize_t moved = direction == Direction::kRead ? ::pread(fd_, memory + done, count, at + done)
                                                        : ::pwrite(fd_, memory + done, count, at + done);
    if (moved < 0 && is_passing(errno)) continue;
    if (moved <= 0) fail(direction, at + done, static_cast<int64_t>(count), moved < 0 ? errno : 0);
    done += moved;
  }
}

// Keeps up to `depth` requests in flight. After a failure it waits for those that are, since they use the memory.
void NvmeFile::transfer_in_ring(Direction direction, int64_t at, std::byte* memory, int64_t size) {
  struct Request {
    int64_t begin = 0, size = 0;
  };
  io_uring* const ring = ring_->get();
  std::vector<Request> requests(static_cast<size_t>(options_.depth));
  std::vector<size_t> idle;
  for (size_t i = requests.size(); i-- > 0;) idle.push_back(i);
  std::vector<Request> again;  // parts of requests that must be asked for again
  int64_t next = 0, in_flight = 0, failed_at = 0, failed_size = 0;
  bool failed = false;
  int failure = 0;
  const auto submit = [&](size_t index) {
    const Request& request = requests[index];
    io_uring_sqe* const entry = io_uring_get_sqe(ring);
    const auto count = static_cast<unsigned>(request.size);
    if (direction == Direction::kRead)
      io_uring_prep_read(entry, fd_, memory + request.begin, count, static_cast<uint64_t>(at + request.begin));
    else
      io_uring_prep_write(entry, fd_, memory + request.begin, count, static_cast<uint64_t>(at + request.begin));
    io_uring_sqe_set_data64(entry, index);
  };
  while (true) {
    while (!failed && !idle.empty() && (next < size || !again.empty())) {
      const size_t index = idle.back();
      idle.pop_back();
      if (!again.empty()) {
        requests[index] = again.back();
        again.pop_back();
      } else {
        requests[index] = {next, std::min(options_.chunk, size - next)};
        next += requests[index].size;
      }
      submit(index);
    }
    if (idle.size() == requests.size()) break;  // nothing is in flight
    const int submitted = io_uring_submit_and_wait(ring, 1);
    if (submitted < 0 && !is_passing(-submitted)) {
      ring_->wait_for(in_flight);
      ring_.reset();  // with what it was not asked for yet; requests go by calls from here on
      fail(direction, at, size, -submitted);
    }
    in_flight += std::max(submitted, 0);
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(ring, &completion) == 0) {
      const auto index = static_cast<size_t>(io_uring_cqe_get_data64(completion));
      const int result = completion->res;
      io_uring_cqe_seen(ring, completion);
      --in_flight;
      const Request request = requests[index];
      idle.push_back(index);
      if (result == request.size) continue;
      if (result > 0) {
        again.push_back({request.begin + result, request.size - result});
      } else if (result < 0 && is_passing(-result)) {
        again.push_back(request);
      } else if (!failed) {
        failed = true, failure = -result, failed_at = at + request.begin, failed_size = request.size;
      }
    }
  }
  if (failed) fail(direction, failed_at, failed_size, failure);
}

void NvmeFile::fail(Direction direction, int64_t at, int64_t size, int error) const {
  const bool reads = direction == Direction::kRead;
  std::string text = std::string("can't ") + (reads ? "read " : "write ") + bytes_text(size) + " at byte " +
                     std::to_string(at) + " of " + printable(options_.path.string()) + ": ";
  if (error != 0)
    text += std::strerror(error);
  else
    text += reads ? "the file ends before, so something has shortened it" : "nothing was written";
  throw Error(Code::kStorage, text + "\n  fix: " +
                                  (error == ENOSPC ? "free room on that drive, or memory.nvme_path = another"
                                                   : "check that drive, or memory.nvme_path = another") +
                                  "; the run goes on from its last checkpoint, which does not need this file");
}

std::span<std::byte> NvmeFile::map() {
  if (!mapped_.empty() || options_.bytes == 0) return mapped_;
  void* const memory =
      ::mmap(nullptr, static_cast<size_t>(options_.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, kNvmeBlock);
  if (memory == MAP_FAILED)
    throw Error(Code::kStorage,
                "can't map " + printable(options_.path.string()) + ": " + std::strerror(errno) + kPathFix);
  mapped_ = {static_cast<std::byte*>(memory), static_cast<size_t>(options_.bytes)};
  return mapped_;
}

void NvmeFile::forget_mapped() {
  if (mapped_.empty()) return;
  if (::msync(mapped_.data(), mapped_.size(), MS_SYNC) != 0) fail(Direction::kWrite, kNvmeBlock, options_.bytes, errno);
  ::madvise(mapped_.data(), mapped_.size(), MADV_DONTNEED);
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace herd
