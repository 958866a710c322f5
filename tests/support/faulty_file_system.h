// A file system that fails or dies at its k-th call, to walk a writer through every fault. Syncing is only noted, so
// that tests don't wait for the disk.
//   kFail  call k returns an error (a write first does half of its bytes, as a filling disk does); later calls work
//   kDie   from call k on nothing reaches the disk and every call fails, as for a killed machine: what was written and
//          not synced is cut to half, and Died is thrown at once
//   kDieAtByte  the same within the write of byte k of all that is written
#pragma once

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "herd/storage/file_system.h"

namespace herd {

struct Died {};

class FaultyFileSystem final : public FileSystem {
 public:
  enum class Fault { kNone, kFail, kDie, kDieAtByte };
  FaultyFileSystem(Fault fault, int at_call, int errno_value = ENOSPC)
      : fault_(fault), at_call_(at_call), errno_(errno_value) {}
  int calls() const { return calls_; }
  int64_t written() const { return written_; }  // bytes

  int create(const std::filesystem::path& path, int permissions) override {
    if (is_faulty()) return -errno_;
    const int fd = FileSystem::create(path, permissions);
    if (fd >= 0) {
      open_[fd] = path;
      unsynced_.insert(path);
    }
    return fd;
  }
  int64_t write_at(int fd, const void* data, size_t bytes, int64_t offset) override {
    if (is_faulty()) {
      if (bytes > 1) FileSystem::write_at(fd, data, bytes / 2, offset);
      return -errno_;
    }
    if (fault_ == Fault::kDieAtByte && written_ + static_cast<int64_t>(bytes) > at_call_) {
      FileSystem::write_at(fd, data, static_cast<size_t>(at_call_ - written_), offset);
      die();
    }
    written_ += static_cast<int64_t>(bytes);
    return FileSystem::write_at(fd, data, bytes, offset);
  }
  int reserve(int fd, int64_t bytes) override { return is_faulty() ? -errno_ : FileSystem::reserve(fd, bytes); }
  int sync(int fd) override {
    if (is_faulty()) return -errno_;
    unsynced_.erase(open_[fd]);
    return 0;
  }
  int close(int fd) override {
    if (dead_) return FileSystem::close(fd);
    if (is_faulty()) {
      FileSystem::close(fd);
      return -errno_;
    }
    return FileSystem::close(fd);
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (is_faulty()) return -errno_;
    move_unsynced(from, to);  // a rename may reach the disk before the bytes do
    return FileSystem::rename(from, to);
  }
  int exchange(const std::filesystem::path& a, const std::filesystem::path& b) override {
    if (is_faulty()) return -errno_;
    const std::filesystem::path between = a.string() + " between";
    move_unsynced(a, between);
    move_unsynced(b, a);
    move_unsynced(between, b);
    return FileSystem::exchange(a, b);
  }
  int remove(const std::filesystem::path& path) override { return is_faulty() ? -errno_ : FileSystem::remove(path); }
  int make_folder(const std::filesystem::path& path) override {
    return is_faulty() ? -errno_ : FileSystem::make_folder(path);
  }
  int sync_folder(const std::filesystem::path&) override { return is_faulty() ? -errno_ : 0; }

 private:
  bool is_faulty() {
    if (dead_) return true;
    if (calls_++ != at_call_ || fault_ == Fault::kNone || fault_ == Fault::kDieAtByte) return false;
    if (fault_ == Fault::kDie) die();
    return true;
  }
  // A file, or all files below a folder.
  void move_unsynced(const std::filesystem::path& from, const std::filesystem::path& to) {
    std::set<std::filesystem::path> moved;
    for (const std::filesystem::path& path : unsynced_) {
      const std::string rest = path.lexically_relative(from).string();
      const bool inside = !rest.empty() && !rest.starts_with("..");
      moved.insert(!inside ? path : rest == "." ? to : to / rest);
    }
    unsynced_ = std::move(moved);
  }
  [[noreturn]] void die() {
    dead_ = true;
    for (const auto& path : unsynced_) {
      std::error_code ignored;
      std::filesystem::resize_file(path, std::filesystem::file_size(path, ignored) / 2, ignored);
    }
    throw Died{};
  }

  Fault fault_;
  int at_call_, errno_, calls_ = 0;
  int64_t written_ = 0;
  bool dead_ = false;
  std::map<int, std::filesystem::path> open_;
  std::set<std::filesystem::path> unsynced_;
};

// A disk that refuses every byte while it is full.
class FullDisk final : public FileSystem {
 public:
  explicit FullDisk(bool is_full = true) : full(is_full) {}
  int64_t write_at(int fd, const void* data, size_t bytes, int64_t offset) override {
    if (full) return ++refused, -ENOSPC;
    return FileSystem::write_at(fd, data, bytes, offset);
  }
  int sync(int) override { return 0; }
  int sync_folder(const std::filesystem::path&) override { return 0; }

  std::atomic<bool> full;
  std::atomic<int> refused = 0;  // writes
};

}  // namespace herd
