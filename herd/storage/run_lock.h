// Lets one process at a time own a run's folder: a RunLock holds `folder/lock` for as long as it exists.
//   On one host    the owner holds an open file's lock (fcntl, F_OFD_SETLK), which the kernel frees however it ends.
//   Between hosts  it holds the same lock where the file system shares it. Everywhere it holds a record in the file,
//                  which it changes every `beat`. A reader that sees a change knows that the owner lives. A record of
//                  another host that does not change for `lease` means a dead owner. Clocks of hosts are not compared.
// An owner that was stopped for longer than the lease, or whose folder was deleted, finds out at its next beat. From
// then on lost() is true, and it must write nothing more.
// Threads: one at a time; lost() from any. A thread of its own beats.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "herd/storage/file_system.h"

namespace herd {

class RunLock {
 public:
  struct Times {
    std::chrono::milliseconds beat{2'000};
    std::chrono::milliseconds lease{20'000};
    // A file server may keep a dead host's lock: a lock whose record no longer changes is waited for this long.
    std::chrono::milliseconds timeout{120'000};
  };
  // Takes the lock, and makes the folder where there is none. Throws kBadConfig with the owner where a living process
  // has it, kStorage where the file can't be written: also where it is a link, or has another name elsewhere.
  explicit RunLock(std::filesystem::path folder, Times times);
  explicit RunLock(std::filesystem::path folder) : RunLock(std::move(folder), Times()) {}
  ~RunLock();  // erases the record; the file stays
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  bool lost() const { return lost_.load(); }
  void check() const;  // throws kAborted if the lock is lost

 private:
  void acquire();
  bool try_lock();
  void wait_for_end_of(const std::string& record, bool locked);
  void write_record();
  bool owns_file() const;
  void beat();

  const std::filesystem::path folder_, path_;
  const FileSystem files_;  // of the folder
  const Times times_;
  int fd_ = -1;
  bool file_locks_ = true;  // whether this file system has locks
  const std::string id_, since_;
  const int parent_;  // process that started this one, which may end earlier
  int64_t beats_ = 0;
  std::atomic<bool> lost_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread beating_;
};

// Throws as RunLock where a living process of this host owns the folder's run. It takes no lock and makes no file.
void refuse_owned_run(const std::filesystem::path& folder);

}  // namespace herd
