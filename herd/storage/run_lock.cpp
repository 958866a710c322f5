#include "herd/storage/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "herd/base/descriptor.h"
#include "herd/base/error.h"
#include "herd/base/host_name.h"
#include "herd/base/log.h"
#include "herd/base/printable.h"
#include "herd/base/process_state.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/run_id.h"
#include "herd/storage/temporary_name.h"

namespace herd {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr char kLockName[] = "lock";
constexpr size_t kRecordBytes = 768;  // size of a record: spaces fill it, so that one write replaces it whole

struct flock whole_file(short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

// Returns an id that changes at each boot: processes with the same id see each other's locks.
std::string kernel_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

// Opens the file anew, since only then are the writes of another host seen. Returns "" where it can't be read.
std::string read_record(const fs::path& path) {
  const Descriptor file(FileSystem(folder_of(path)).open(path, O_RDONLY));
  std::string text(kRecordBytes, '\0');
  const ssize_t got = file.fd < 0 ? 0 : ::pread(file.fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

// The record is written in place, so that the file must have no second name, under which it is something else.
void refuse_other_names(int fd, const fs::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_nlink <= 1) return;
  throw Error(Code::kStorage, "the lock " + path.string() + " of a run's folder has " + std::to_string(info.st_nlink) +
                                  " names (hard links), and would be overwritten under all of them\n  fix: delete "
                                  "this one");
}

// Holds what a lock's record says of the job that wrote it.
struct Owner {
  std::string id, host, kernel, since;
  int64_t process = 0, parent = 0;
  std::string text() const {
    return "process " + std::to_string(process) + " on host " + printable(host) + ", since " + printable(since);
  }
};

Owner owner_of(const std::string& record) {
  const auto json = nlohmann::json::parse(record, nullptr, false);
  Owner owner{.id = "", .host = "unknown", .kernel = "", .since = "unknown"};
  if (!json.is_object()) return owner;
  const auto text = [&](const char* name, std::string& value) {
    if (const auto found = json.find(name); found != json.end() && found->is_string()) value = *found;
  };
  text("id", owner.id);
  text("host", owner.host);
  text("kernel", owner.kernel);
  text("since", owner.since);
  const auto number = [&](const char* name, int64_t& value) {
    if (const auto found = json.find(name); found != json.end() && found->is_number_integer()) value = *found;
  };
  number("process", owner.process);
  number("parent", owner.parent);
  return owner;
}

// Says whether the owner, a process of this kernel, is about to let go of the lock. A rank whose launcher has been
// killed is ended within a moment by the launcher's guardian.
bool is_about_to_end(const Owner& owner) {
  const int process = static_cast<int>(owner.process), parent = parent_of(process);
  return is_ending(process) || (owner.parent > 0 && parent > 0 && parent != owner.parent);
}

// Waits for a moment while the lock's owner ends. Returns whether `take` has returned true; it is called until then.
bool wait_for_ending_owner(const fs::path& folder, const fs::path& lock, const std::function<bool()>& take) {
  constexpr std::chrono::milliseconds kLongest{2000}, kPause{10};
  const auto begin = Clock::now();
  for (bool said = false;;) {
    const std::string record = read_record(lock);  // empty: its owner is just about to write it, or to let go
    const Owner owner = owner_of(record);
    const bool ends = record.empty() || (owner.kernel == kernel_id() && is_about_to_end(owner));
    if (take()) return true;
    if (!ends || Clock::now() > begin + kLongest) return false;
    if (!said && !record.empty()) {
      log_warning("waiting for up to " + std::to_string(kLongest.count() / 1000) + " s: " + owner.text() +
                  ", which owned " + folder.string() + ", is ending");
      said = true;
    }
    std::this_thread::sleep_for(kPause);
  }
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& record) {
  throw Error(Code::kBadConfig, "one job at a time owns a run's folder, and " + folder.string() + " is owned by " +
                                    owner_of(record).text() +
                                    "\n  fix: another log.name, or wait until that job has ended");
}

}  // namespace

RunLock::RunLock(fs::path folder, Times times)
    : folder_(std::move(folder)),
      path_(folder_ / kLockName),
      files_(folder_),
      times_(times),
      id_(new_run_id()),
      since_(utc_now()),
      parent_(::getppid()) {
  make_folders(folder_);
  try {
    acquire();
    write_record();
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
  beating_ = std::thread([this] { beat(); });
}

RunLock::~RunLock() {
  {
    const std::lock_guard hold(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  beating_.join();
  if (!lost_ && owns_file()) [[maybe_unused]]
    const int erased = ::ftruncate(fd_, 0);
  ::close(fd_);
}

void RunLock::check() const {
  if (!lost_) return;
  throw Error(Code::kAborted, "this job no longer owns " + folder_.string() + ": the folder was deleted, or " +
                                  owner_of(read_record(path_)).text() +
                                  " took it over while this one stood still\n  fix: leave the folder to that job, or "
                                  "end it and start this one again");
}

bool RunLock::owns_file() const {
  struct stat here {
  }, there{};
  return ::fstat(fd_, &here) == 0 && files_.stat(path_, there) == 0 && here.st_ino == there.st_ino &&
         here.st_dev == there.st_dev;
}

// Returns false where another open file has the lock, or the file was deleted meanwhile. Where the file system has no
// locks it clears file_locks_ and returns true: then the record alone decides.
bool RunLock::try_lock() {
  if (fd_ >= 0 && !owns_file()) {  // deleted meanwhile
    ::close(fd_);
    fd_ = -1;
  }
  if (fd_ < 0) fd_ = files_.open(path_, O_RDWR | O_CREAT);
  if (fd_ < 0) throw_errno(Code::kStorage, "open the lock " + path_.string() + " of a run's folder", -fd_);
  refuse_other_names(fd_, path_);
  struct flock range = whole_file(F_WRLCK);
  if (::fcntl(fd_, F_OFD_SETLK, &range) == 0) return owns_file();
  if (errno == EAGAIN || errno == EACCES) return false;
  if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP && errno != EINVAL)
    throw_errno(Code::kStorage, "lock " + path_.string(), errno);
  file_locks_ = false;
  return true;
}

void RunLock::acquire() {
  const bool locked = wait_for_ending_owner(folder_, path_, [this] { return try_lock(); });
  const std::string record = read_record(path_);
  const bool same_kernel = file_locks_ && owner_of(record).kernel == kernel_id();
  if (!locked && same_kernel) refuse(folder_, record);
  if (locked && (record.empty() || same_kernel)) return;  // whoever wrote it has ended
  wait_for_end_of(record, locked);
}

// Waits until the record's owner, maybe on another host, must be dead. Refuses as soon as the record changes.
void RunLock::wait_for_end_of(const std::string& record, bool locked) {
  log_warning("waiting for up to " + std::to_string(times_.lease.count() / 1000) + " s to see whether " +
              owner_of(record).text() + " lives: it owned " + folder_.string());
  const auto begin = Clock::now();
  while (!locked || Clock::now() < begin + times_.lease) {
    std::this_thread::sleep_for(std::min(times_.beat / 2, std::chrono::milliseconds(500)));
    if (read_record(path_) != record) refuse(folder_, read_record(path_));
    if (!locked) locked = try_lock();
    if (!locked && Clock::now() > begin + times_.timeout) refuse(folder_, record);
  }
}

void RunLock::write_record() {
  const nlohmann::ordered_json json = {{"format", "herd-lock"}, {"version", 1},          {"id", id_},
                                       {"host", host_name()},   {"kernel", kernel_id()}, {"process", ::getpid()},
                                       {"parent", parent_},     {"since", since_},       {"beat", beats_++}};
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize(std::max(text.size() + 1, kRecordBytes), ' ');
  text.back() = '\n';
  const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
  const bool whole = written == static_cast<ssize_t>(text.size()) && ::fdatasync(fd_) == 0;
  if (!whole && beats_ == 1)
    throw_errno(Code::kStorage, "write the owner into " + path_.string(), written < 0 ? errno : ENOSPC);
}

// A beat that can't be written is made good by the next one.
void RunLock::beat() {
  std::unique_lock hold(mutex_);
  while (!ended_.wait_for(hold, times_.beat, [this] { return ending_; })) {
    const std::string writer = owner_of(read_record(path_)).id;
    if (!owns_file() || (!writer.empty() && writer != id_)) {
      lost_ = true;
      return;
    }
    write_record();
  }
}

void refuse_owned_run(const fs::path& folder) {
  const fs::path path = folder / kLockName;
  const Descriptor file(FileSystem(folder).open(path, O_RDWR));
  if (file.fd < 0) return;
  const bool is_free = wait_for_ending_owner(folder, path, [&file] {
    struct flock range = whole_file(F_WRLCK);
    return ::fcntl(file.fd, F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK;
  });
  if (!is_free) refuse(folder, read_record(path));
}

}  // namespace herd
