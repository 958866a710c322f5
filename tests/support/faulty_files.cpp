// Lets one request to files fail, as a drive does: in a program that it is preloaded into (LD_PRELOAD), or linked with.
// Requests of io_uring count as those of calls do: what the kernel has answered is changed before the program reads it.
//   HERD_FAULTY_FILES="read 12 EIO nvme"         the 12th read of files whose paths hold "nvme" fails with EIO
//   HERD_FAULTY_FILES="write 3 short /tmp/x"     the 3rd write moves half of its blocks
//   HERD_FAULTY_FILES="open 1 EINVAL nvme"       the first open() with O_DIRECT is refused
//   HERD_FAULTY_FILES="ring 1 ENOSYS /"          io_uring is refused; the path is not looked at
//   HERD_FAULTY_FILES="register 1 ENOMEM /"      memory is not registered with io_uring, in the same way
//   HERD_FAULTY_FILES="submit 2 EBUSY /"         the second submission to a ring is refused, in the same way
// Several faults are separated by ";". The variable is read at each request, and counting begins anew when it changes;
// a process that is forked goes on counting. Threads: any.
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr size_t kBlock = 4096;  // a drive moves whole ones
constexpr int kNoFault = 0, kShort = -1;

struct Fault {
  std::string request;  // "read", "write", "open", "ring", "register" or "submit"
  int64_t number = 0;   // of the request that fails, from 1
  int error = kNoFault;
  std::string path;  // part of the files' paths
  int64_t requests = 0;
};

int error_named(const std::string& name) {
  static const std::map<std::string, int> errors = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINVAL", EINVAL},
                                                    {"ENOSYS", ENOSYS}, {"EAGAIN", EAGAIN}, {"EBUSY", EBUSY},
                                                    {"ENOMEM", ENOMEM}, {"short", kShort}};
  const auto found = errors.find(name);
  return found == errors.end() ? EIO : found->second;
}

class Faults {
 public:
  // Count a request, and return what comes of it: kNoFault, kShort or an errno.
  int next(const std::string& request, const std::string& path) {
    const std::lock_guard lock(mutex_);
    return refresh() ? count(request, path) : kNoFault;
  }
  int next(const std::string& request, int descriptor) {
    const std::lock_guard lock(mutex_);
    if (!refresh()) return kNoFault;
    char path[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    return ::readlink(link.c_str(), path, sizeof path - 1) < 0 ? kNoFault : count(request, path);
  }

 private:
  bool refresh() {  // tells whether there is any fault
    const char* const variable = std::getenv("HERD_FAULTY_FILES");
    const std::string stated = variable == nullptr ? "" : variable;
    if (stated != stated_) parse(stated);
    return !faults_.empty();
  }
  int count(const std::string& request, const std::string& path) {
    int error = kNoFault;
    for (Fault& fault : faults_) {
      if (fault.request != request || path.find(fault.path) == std::string::npos) continue;
      if (++fault.requests == fault.number) error = fault.error;
    }
    return error;
  }
  void parse(const std::string& text) {
    stated_ = text;
    faults_.clear();
    std::istringstream all(text);
    for (std::string one; std::getline(all, one, ';');) {
      std::istringstream words(one);
      Fault fault;
      std::string error;
      words >> fault.request >> fault.number >> error >> std::ws;
      fault.error = error_named(error);
      std::getline(words, fault.path);
      faults_.push_back(fault);
    }
  }

  std::mutex mutex_;
  std::string stated_;
  std::vector<Fault> faults_;
};

Faults& faults() {
  static Faults* const all = new Faults;  // programs make requests until they are over
  return *all;
}

size_t half_of(size_t bytes) { return bytes < 2 * kBlock ? bytes : bytes / 2 / kBlock * kBlock; }

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// A request that is in a ring and shall fail.
struct Struck {
  uint64_t id = 0;
  int result = 0;  // -errno
};
std::mutex struck_mutex;
std::multimap<io_uring*, Struck> struck_requests;

// Shortens the requests that are about to be submitted, and notes those that shall fail.
void strike(io_uring* ring) {
  for (unsigned at = ring->sq.sqe_head; at != ring->sq.sqe_tail; ++at) {
    io_uring_sqe& entry = ring->sq.sqes[at & ring->sq.ring_mask];
    const bool reads = entry.opcode == IORING_OP_READ || entry.opcode == IORING_OP_READ_FIXED;
    if (!reads && entry.opcode != IORING_OP_WRITE && entry.opcode != IORING_OP_WRITE_FIXED) continue;
    const int error = faults().next(reads ? "read" : "write", entry.fd);
    if (error == kShort) entry.len = static_cast<unsigned>(half_of(entry.len));
    if (error <= 0) continue;
    const std::lock_guard lock(struck_mutex);
    struck_requests.insert({ring, {entry.user_data, -error}});
  }
}

// Changes the answers that have come to what was struck; false: some are still to come.
bool change_answers(io_uring* ring) {
  const std::lock_guard lock(struck_mutex);
  const unsigned end = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);
  for (unsigned at = *ring->cq.khead; at != end; ++at) {
    io_uring_cqe& answer = ring->cq.cqes[at & ring->cq.ring_mask];
    const auto [begin, past] = struck_requests.equal_range(ring);
    for (auto struck = begin; struck != past; ++struck) {
      if (struck->second.id != answer.user_data) continue;
      answer.res = struck->second.result;
      struck_requests.erase(struck);
      break;
    }
  }
  return !struck_requests.contains(ring);
}

}  // namespace

extern "C" {

ssize_t pread(int descriptor, void* to, size_t bytes, off_t offset) {
  static auto* const call = real<ssize_t(int, void*, size_t, off_t)>("pread");
  const int error = faults().next("read", descriptor);
  if (error > 0) return errno = error, -1;
  return call(descriptor, to, error == kShort ? half_of(bytes) : bytes, offset);
}

ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t offset) {
  static auto* const call = real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const int error = faults().next("write", descriptor);
  if (error > 0) return errno = error, -1;
  return call(descriptor, from, error == kShort ? half_of(bytes) : bytes, offset);
}

int open(const char* path, int flags, ...) {
  static auto* const call = real<int(const char*, int, ...)>("open");
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if ((flags & O_DIRECT) != 0) {
    if (const int error = faults().next("open", std::string(path)); error > 0) return errno = error, -1;
  }
  return call(path, flags, mode);
}

int io_uring_queue_init(unsigned entries, io_uring* ring, unsigned flags) {
  static auto* const call = real<int(unsigned, io_uring*, unsigned)>("io_uring_queue_init");
  if (const int error = faults().next("ring", std::string("/")); error > 0) return -error;
  return call(entries, ring, flags);
}

int io_uring_register_buffers(io_uring* ring, const iovec* buffers, unsigned count) {
  static auto* const call = real<int(io_uring*, const iovec*, unsigned)>("io_uring_register_buffers");
  if (const int error = faults().next("register", std::string("/")); error > 0) return -error;
  return call(ring, buffers, count);
}

int io_uring_submit_and_wait(io_uring* ring, unsigned count) {
  static auto* const call = real<int(io_uring*, unsigned)>("io_uring_submit_and_wait");
  if (const int error = faults().next("submit", std::string("/")); error > 0) return -error;
  strike(ring);
  const int submitted = call(ring, count);
  while (submitted >= 0 && !change_answers(ring)) ::sched_yield();
  return submitted;
}

}  // extern "C"
