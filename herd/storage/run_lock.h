// One process at a time owns a run's folder: a RunLock holds `folder/lock` for as long as it exists.
//   On one host    an open file's lock (fcntl, F_OFD_SETLK), which the kernel frees when its owner ends, however it
//   ends. Between hosts  the same lock where the file system shares it, and everywhere a record in the file, which the
//   owner
//                  changes every `beat`. A reader that sees it change knows that its owner lives; a record of another
//                  host that stands still for `lease` is of a dead one. No clocks of two hosts are compared.
// An owner that stood still for longer than the lease, or whose folder was deleted, finds that out at its next beat:
// lost() says so from then on, and it must write nothing more.
// Threads: one; lost() from any. A thread of its own beats.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

namespace herd {

class RunLock {
 public:
  struct Times {
    std::chrono::milliseconds beat{2'000};
    std::chrono::milliseconds lease{20'000};
    // A dead host's lock may outlast it at a file server; for so long a lock without beats is waited for.
    std::chrono::milliseconds timeout{120'000};
  };
  // Takes the lock, and makes the folder where there is none. Throws kBadConfig naming the owner where a living process
  // has it, kStorage where the file can't be written.
  explicit RunLock(std::filesystem::path folder, Times times);
  explicit RunLock(std::filesystem::path folder) : RunLock(std::move(folder), Times()) {}
  ~RunLock();  // the record is erased, the file stays
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  bool lost() const { return lost_.load(); }
  void check() const;  // throws kAborted if it is lost

 private:
  void acquire();
  bool try_lock();
  void wait_for_end_of(const std::string& record, bool locked);
  void write_record();
  bool owns_file() const;
  void beat();

  const std::filesystem::path folder_, path_;
  const Times times_;
  int fd_ = -1;
  bool file_locks_ = true;  // this file system has locks
  const std::string id_, since_;
  int64_t beats_ = 0;
  std::atomic<bool> lost_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread beating_;
};

// Throws as RunLock where a living process of this host owns the folder's run. Takes and makes nothing.
void refuse_owned_run(const std::filesystem::path& folder);

}  // namespace herd
