#include "herd/memory/nvme_file.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/units.h"

namespace herd {
namespace {

constexpr std::string_view kMagic = "herd nvme 1\n";
constexpr int64_t kMaxStripes = 32768;  // or some more: each is a mapping, of which a process may have 65530
constexpr std::chrono::milliseconds kEndOfOwner{1000};  // how long a file in use is waited for
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

// Says what the system answered. Where it may be that too few pages can be locked, as requests past the page cache
// need, how many may be.
std::string answer_text(int error) {
  std::string text = std::strerror(error);
  struct rlimit locked = {};
  if (error == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
    text += ", where a process may lock " + bytes_text(static_cast<int64_t>(locked.rlim_cur));
  return text;
}

// Tells whether a request may simply be made again.
bool is_passing(int error) { return error == EINTR || error == EAGAIN; }

[[noreturn]] void throw_failure(const std::string& verb, const std::filesystem::path& path, int64_t at, int64_t size,
                                int error) {
  std::string text = "can't " + verb + " " + bytes_text(size) + " at byte " + std::to_string(at) + " of " +
                     printable(path.string()) + ": ";
  if (error != 0)
    text += answer_text(error);
  else
    text += verb == "read" ? "the file ends before, so something has shortened it" : "nothing was written";
  throw Error(Code::kStorage, text + "\n  fix: " +
                                  (error == ENOSPC   ? "free room on that drive, or memory.nvme_path = another"
                                   : error == ENOMEM ? "fewer ranks on this host, or more pages that may be locked "
                                                       "(ulimit -l unlimited)"
                                                     : "check that drive, or memory.nvme_path = another") +
                                  "; the run goes on from its last checkpoint, which does not need this file");
}

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

  // Lets requests name this memory by its number, so that the kernel holds its pages. Returns what it answers; requests
  // work as before where that is no 0.
  int use_memory(const std::vector<std::span<std::byte>>& memory) {
    parts_.clear();
    std::vector<iovec> buffers;
    for (const std::span<std::byte> all : memory) {
      for (size_t begin = 0; begin < all.size(); begin += kMaxRegistered) {
        parts_.push_back(all.subspan(begin, std::min(kMaxRegistered, all.size() - begin)));
        buffers.push_back({parts_.back().data(), parts_.back().size()});
      }
    }
    const int error = -io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (error != 0) parts_.clear();
    return error;
  }
  bool has_memory() const { return !parts_.empty(); }

  // Writes the next request, whose answer will have the number.
  void prepare(Direction direction, const Place& place, std::span<std::byte> memory, uint64_t number) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    const auto count = static_cast<unsigned>(memory.size());
    const auto at = static_cast<uint64_t>(place.at);
    const int part = part_of(memory);
    const bool reads = direction == Direction::kRead;
    if (part >= 0 && reads)
      io_uring_prep_read_fixed(entry, place.fd, memory.data(), count, at, part);
    else if (part >= 0)
      io_uring_prep_write_fixed(entry, place.fd, memory.data(), count, at, part);
    else if (reads)
      io_uring_prep_read(entry, place.fd, memory.data(), count, at);
    else
      io_uring_prep_write(entry, place.fd, memory.data(), count, at);
    io_uring_sqe_set_data64(entry, number);
  }
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
  static constexpr size_t kMaxRegistered = size_t{1} << 30;  // bytes of a part, by the kernel's rule

  // Returns the number of the registered part that has all of the memory; -1 where none has.
  int part_of(std::span<std::byte> memory) const {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (memory.data() >= parts_[i].data() && memory.data() + memory.size() <= parts_[i].data() + parts_[i].size())
        return static_cast<int>(i);
    return -1;
  }

  io_uring ring_ = {};
  bool is_open_ = false;
  std::vector<std::span<std::byte>> parts_;  // of registered memory, by number
};

// Opens, checks and reserves one file, and removes it in the end.
class NvmeFile::Part {
 public:
  Part(const std::filesystem::path& path, int64_t bytes, const Options& options, const std::string& contents,
       std::vector<std::string>& notes)
      : path_(path), notes_(notes) {
    open_file(options.try_direct);
    try {
      check_owner(options.run);
      reserve(kNvmeBlock + bytes);
      write_header(std::string(kMagic) + options.run + "\n" + contents);
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
  ~Part() {
    ::unlink(path_.c_str());
    ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  void open_file(bool try_direct);
  void check_owner(const std::string& run) const;
  void reserve(int64_t bytes);
  void write_header(std::string text);
  void note_no_direct() {
    notes_.push_back("no O_DIRECT in " + path_.parent_path().string() + ": reads and writes go through the page cache");
  }

  const std::filesystem::path path_;
  std::vector<std::string>& notes_;
  int fd_ = -1;
};

void NvmeFile::Part::open_file(bool try_direct) {
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  const auto open_with = [&](int more) { return ::open(path_.c_str(), kFlags | more, 0600); };
  // A killed process has its file until the kernel is done with its requests, some milliseconds longer than it lives.
  const auto until = std::chrono::steady_clock::now() + kEndOfOwner;
  while (true) {
    bool direct = try_direct;
    if (direct) fd_ = open_with(O_DIRECT);
    if (fd_ < 0) {
      fd_ = open_with(0);
      direct = false;
    }
    if (fd_ < 0)
      throw Error(Code::kStorage, "can't open " + printable(path_.string()) + ": " + std::strerror(errno) + kPathFix);
    struct stat status = {};
    const bool is_ours = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd_, &status) == 0;
    if (is_ours && status.st_nlink > 0) {  // else its owner has removed it meanwhile
      if (!direct) note_no_direct();
      return;
    }
    ::close(std::exchange(fd_, -1));
    if (!is_ours && std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw Error(Code::kBadConfig, printable(path_.string()) +
                                    " is in use by another process\n  fix: memory.nvme_path = a folder of this run's "
                                    "own, or end that process");
}

// Refuses a file that is not herd's, or another run's: a mistyped folder must not cost what lies there.
void NvmeFile::Part::check_owner(const std::string& run) const {
  struct stat status = {};
  if (::fstat(fd_, &status) != 0 || status.st_size == 0) return;
  const AlignedBlock block = aligned_block();
  const ssize_t got = ::pread(fd_, block.get(), kNvmeBlock, 0);
  const std::string_view header(reinterpret_cast<const char*>(block.get()),
                                static_cast<size_t>(std::max<ssize_t>(0, got)));
  const std::string path = printable(path_.string());
  if (!header.starts_with(kMagic)) {
    throw Error(Code::kBadConfig, path +
                                      " is no file that herd keeps values in\n  fix: memory.nvme_path = another "
                                      "folder, or remove that file");
  }
  const std::string_view lines = header.substr(kMagic.size());
  const std::string owner(lines.substr(0, lines.find('\n')));
  if (owner == run) return;
  throw Error(Code::kBadConfig, path + " belongs to run " + printable(owner) + ", this is run " + run +
                                    "\n  fix: memory.nvme_path = another folder; or, if that run won't go on, remove "
                                    "the file");
}

void NvmeFile::Part::reserve(int64_t bytes) {
  if (::ftruncate(fd_, 0) == 0 && ::fallocate(fd_, 0, 0, bytes) == 0) return;
  if (errno == EOPNOTSUPP && ::ftruncate(fd_, bytes) == 0) {
    notes_.push_back("can't reserve room in " + path_.parent_path().string() +
                     ": a full drive shows when it is written");
    return;
  }
  const int error = errno;
  struct statvfs drive = {};
  const bool known = ::fstatvfs(fd_, &drive) == 0;
  ::unlink(path_.c_str());
  throw Error(
      Code::kStorage,
      "no room for " + bytes_text(bytes) + " in " + printable(path_.string()) + ": " + std::strerror(error) +
          (known ? ", " + bytes_text(static_cast<int64_t>(drive.f_bavail * drive.f_frsize)) + " are free" : "") +
          kPathFix);
}

void NvmeFile::Part::write_header(std::string text) {
  const AlignedBlock block = aligned_block();
  if (text.size() >= kNvmeBlock) text.resize(kNvmeBlock - 1);
  std::memcpy(block.get(), text.data(), text.size());
  ssize_t wrote = ::pwrite(fd_, block.get(), kNvmeBlock, 0);
  if (wrote < 0 && errno == EINVAL) {  // some file systems take the flag and refuse the request
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT);
    note_no_direct();
    wrote = ::pwrite(fd_, block.get(), kNvmeBlock, 0);
  }
  if (wrote != kNvmeBlock) throw_failure("write", path_, 0, kNvmeBlock, wrote < 0 ? errno : 0);
}

NvmeFile::NvmeFile(Options options) : options_(std::move(options)) {
  HERD_CHECK(options_.bytes % kNvmeBlock == 0 && options_.requests.chunk % kNvmeBlock == 0,
             "a file of parts of blocks");
  const size_t n = options_.paths.size();
  HERD_CHECK(n > 0, "values in no file");
  // Stripes are as long as a request, or as several where there would be too many to map.
  const int64_t chunk = options_.requests.chunk, requests = 1 + options_.bytes / chunk / kMaxStripes;
  stripe_ = n == 1 ? std::max(options_.bytes, kNvmeBlock) : requests * chunk;
  for (size_t i = 0; i < n; ++i) {
    const std::string stripes = n == 1 ? ""
                                       : "file " + std::to_string(i) + " of " + std::to_string(n) + ", stripes of " +
                                             std::to_string(stripe_) + " bytes\n";
    files_.push_back(
        std::make_unique<Part>(options_.paths[i], bytes_of_file(i), options_, stripes + options_.contents, notes_));
  }
  const int refused = open_ring();
  if (!ring_)
    notes_.push_back("no io_uring here (" + (options_.try_ring ? answer_text(refused) : "not tried") +
                     "): files are read and written one request at a time" +
                     (refused == ENOMEM ? "; fix: ulimit -l unlimited" : ""));
  register_memory();
}

int NvmeFile::open_ring() {
  int refused = 0;
  ring_.reset();
  if (options_.try_ring) ring_ = Ring::make(options_.requests.depth * static_cast<int>(files_.size()), refused);
  return refused;
}

void NvmeFile::set_requests(NvmeRequests requests) {
  HERD_CHECK(requests.depth > 0 && requests.chunk > 0 && requests.chunk % kNvmeBlock == 0, "requests of whole blocks");
  const NvmeRequests before = std::exchange(options_.requests, requests);
  if (!ring_ || requests.depth == before.depth) return;
  open_ring();
  if (!ring_) {  // it had one: the old one again, or calls
    options_.requests = before;
    open_ring();
  }
  register_memory();
}

// Lets the ring use the memory of the options by number, or says why the kernel does not.
void NvmeFile::register_memory() {
  std::erase_if(options_.memory, [](std::span<std::byte> part) { return part.empty(); });
  if (!ring_ || options_.memory.empty()) return;
  const int refused = ring_->use_memory(options_.memory);
  if (refused == 0) return;
  int64_t bytes = 0;
  for (const std::span<std::byte> part : options_.memory) bytes += static_cast<int64_t>(part.size());
  notes_.push_back("can't register " + bytes_text(bytes) + " of memory with io_uring (" + answer_text(refused) +
                   "): each request looks its pages up" + (refused == ENOMEM ? "; fix: ulimit -l unlimited" : ""));
  options_.memory.clear();
}

bool NvmeFile::uses_registered_memory() const { return ring_ && ring_->has_memory(); }

NvmeFile::~NvmeFile() {
  mapped_name_.reset();
  if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
}

NvmeFile::Place NvmeFile::place_of(int64_t offset) const {
  const auto n = static_cast<int64_t>(files_.size());
  const int64_t stripe = offset / stripe_, in_stripe = offset % stripe_;
  const auto file = static_cast<size_t>(stripe % n);
  return {files_[file]->fd(), file, kNvmeBlock + stripe / n * stripe_ + in_stripe,
          std::min(stripe_ - in_stripe, options_.bytes - offset)};
}

int64_t NvmeFile::bytes_of_file(size_t file) const {
  const auto n = static_cast<int64_t>(options_.paths.size());
  int64_t bytes = 0;
  for (int64_t begin = static_cast<int64_t>(file) * stripe_; begin < options_.bytes; begin += n * stripe_)
    bytes += std::min(stripe_, options_.bytes - begin);
  return bytes;
}

void NvmeFile::read(int64_t offset, std::span<std::byte> to) {
  const Extent all{offset, to};
  transfer(Direction::kRead, {&all, 1});
}
void NvmeFile::write(int64_t offset, std::span<const std::byte> from) {
  const Extent all{offset, {const_cast<std::byte*>(from.data()), from.size()}};
  transfer(Direction::kWrite, {&all, 1});
}
void NvmeFile::read(std::span<const Extent> extents) { transfer(Direction::kRead, extents); }
void NvmeFile::write(std::span<const Extent> extents) { transfer(Direction::kWrite, extents); }

void NvmeFile::transfer(Direction direction, std::span<const Extent> extents) {
  for (const Extent& extent : extents) {
    HERD_CHECK(extent.offset % kNvmeBlock == 0 && extent.size() % kNvmeBlock == 0 &&
                   reinterpret_cast<uintptr_t>(extent.memory.data()) % kNvmeBlock == 0 &&
                   extent.offset + extent.size() <= options_.bytes,
               "bytes [" + std::to_string(extent.offset) + ", " + std::to_string(extent.offset + extent.size()) +
                   ") of a file of " + std::to_string(options_.bytes) + ", memory included, must be whole blocks");
  }
  if (ring_)
    transfer_in_ring(direction, extents);
  else
    for (const Extent& extent : extents) transfer_by_calls(direction, extent);
  for (const Extent& extent : extents) (direction == Direction::kRead ? bytes_read_ : bytes_written_) += extent.size();
}

void NvmeFile::transfer_by_calls(Direction direction, const Extent& extent) {
  for (int64_t done = 0; done < extent.size();) {
    const Place place = place_of(extent.offset + done);
    const auto count = static_cast<size_t>(std::min({options_.requests.chunk, extent.size() - done, place.left}));
    std::byte* const memory = extent.memory.data() + done;
    const ssize_t moved = direction == Direction::kRead ? ::pread(place.fd, memory, count, place.at)
                                                        : ::pwrite(place.fd, memory, count, place.at);
    if (moved < 0 && is_passing(errno)) continue;
    if (moved <= 0) fail(direction, extent.offset + done, static_cast<int64_t>(count), moved < 0 ? errno : 0);
    done += moved;
  }
}

// Keeps up to `depth` requests for each file in flight. After a failure it waits for those that are, since they use the
// memory.
void NvmeFile::transfer_in_ring(Direction direction, std::span<const Extent> extents) {
  struct Request {
    size_t extent = 0;
    int64_t begin = 0, size = 0;
  };
  io_uring* const ring = ring_->get();
  std::vector<Request> requests(static_cast<size_t>(options_.requests.depth) * files_.size());
  std::vector<size_t> idle;
  for (size_t i = requests.size(); i-- > 0;) idle.push_back(i);
  std::vector<Request> again;  // parts of requests that must be asked for again
  Request next;                // where the next one begins
  const auto skip_ended = [&] {
    while (next.extent < extents.size() && next.begin == extents[next.extent].size()) next = {next.extent + 1};
  };
  skip_ended();
  int64_t in_flight = 0, failed_at = 0, failed_size = 0;
  bool failed = false;
  int failure = 0;
  const auto submit = [&](size_t index) {
    const Request& request = requests[index];
    const Extent& extent = extents[request.extent];
    const Place place = place_of(extent.offset + request.begin);
    ring_->prepare(direction, place, {extent.memory.data() + request.begin, static_cast<size_t>(request.size)}, index);
  };
  while (true) {
    while (!failed && !idle.empty() && (next.extent < extents.size() || !again.empty())) {
      const size_t index = idle.back();
      idle.pop_back();
      if (!again.empty()) {
        requests[index] = again.back();
        again.pop_back();
      } else {
        const Extent& extent = extents[next.extent];
        next.size =
            std::min({options_.requests.chunk, extent.size() - next.begin, place_of(extent.offset + next.begin).left});
        requests[index] = next;
        next.begin += next.size;
        skip_ended();
      }
      submit(index);
    }
    if (idle.size() == requests.size()) break;  // nothing is in flight
    const int submitted = io_uring_submit_and_wait(ring, 1);
    if (submitted < 0 && !is_passing(-submitted)) {
      ring_->wait_for(in_flight);
      ring_.reset();  // with what it was not asked for yet; requests go by calls from here on
      fail(direction, extents[0].offset, extents[0].size(), -submitted);
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
        again.push_back({request.extent, request.begin + result, request.size - result});
      } else if (result < 0 && is_passing(-result)) {
        again.push_back(request);
      } else if (!failed) {
        failed = true, failure = -result, failed_size = request.size;
        failed_at = extents[request.extent].offset + request.begin;
      }
    }
  }
  if (failed) fail(direction, failed_at, failed_size, failure);
}

void NvmeFile::fail(Direction direction, int64_t offset, int64_t size, int error) const {
  const Place place = place_of(offset);
  throw_failure(direction == Direction::kRead ? "read" : "write", options_.paths[place.file], place.at, size, error);
}

std::span<std::byte> NvmeFile::map() {
  if (!mapped_.empty() || options_.bytes == 0) return mapped_;
  const auto size = static_cast<size_t>(options_.bytes);
  std::string names;
  for (const auto& path : options_.paths) names += (names.empty() ? "" : " and ") + path.string();
  const auto check = [&](void* memory) {
    if (memory == MAP_FAILED)
      throw Error(Code::kStorage, "can't map " + printable(names) + ": " + std::strerror(errno) + kPathFix);
    return static_cast<std::byte*>(memory);
  };
  const std::span<std::byte> room = {
      check(::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)), size};
  try {
    for (int64_t begin = 0; begin < options_.bytes; begin += stripe_) {
      const Place place = place_of(begin);
      check(::mmap(room.data() + begin, static_cast<size_t>(place.left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   place.fd, place.at));
    }
  } catch (...) {
    ::munmap(room.data(), room.size());
    throw;
  }
  mapped_ = room;
  mapped_name_.emplace(mapped_, names, static_cast<size_t>(kNvmeBlock));
  return mapped_;
}

void NvmeFile::forget_mapped() {
  if (mapped_.empty()) return;
  for (int64_t begin = 0; begin < options_.bytes; begin += stripe_) {
    const int64_t size = std::min(stripe_, options_.bytes - begin);
    if (::msync(mapped_.data() + begin, static_cast<size_t>(size), MS_SYNC) != 0)
      fail(Direction::kWrite, begin, size, errno);
  }
  ::madvise(mapped_.data(), mapped_.size(), MADV_DONTNEED);
  for (const auto& file : files_) ::posix_fadvise(file->fd(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace herd
