// Puts the few system calls that change files behind an interface, so that tests can make any one fail or block.
// Each method returns 0 (or a value >= 0) or -errno, like the kernel; nothing throws.
// Threads: the system's own implementation from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace herd {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int create(const std::filesystem::path& path);  // makes a new file for writing; -EEXIST if there is one
  virtual int64_t write_at(int fd, const void* data, size_t bytes, int64_t offset);  // may write less than asked
  virtual int reserve(int fd, int64_t bytes);  // returns -EOPNOTSUPP where the file system can't
  virtual int sync(int fd);                    // makes data and length durable
  virtual int close(int fd);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to);  // replaces `to`
  virtual int link(const std::filesystem::path& from, const std::filesystem::path& to);    // gives a file another name
  // Swaps two existing paths in one step.
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  virtual int remove(const std::filesystem::path& path);       // removes a file or an empty folder
  virtual int make_folder(const std::filesystem::path& path);  // returns 0 if it is there already
  virtual int sync_folder(const std::filesystem::path& path);  // makes the names in it durable

  static FileSystem& system();
};

}  // namespace herd
