// Puts the few system calls that change files behind an interface, so that tests can make any one fail or block.
// Each method returns 0 (or a value >= 0) or -errno, like the kernel; nothing throws.
// A FileSystem of a folder serves paths at and below that folder, whose content may be hostile. The folder's own path
// may lead over links; below it none is followed: one on the way to a path is -ELOOP, one at its end counts as itself.
// Other paths are -EXDEV. FileSystem::system() serves all paths and follows links, as the kernel does.
// Threads: the system's own implementation from any thread.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace herd {

inline constexpr int kFilePermissions = 0644;  // of files that copy none with others

class FileSystem {
 public:
  FileSystem() = default;
  explicit FileSystem(std::filesystem::path folder);  // need not be there yet
  virtual ~FileSystem() = default;
  // Makes a new file for writing, with these permissions less the umask; -EEXIST if there is one.
  virtual int create(const std::filesystem::path& path, int permissions);
  virtual int64_t write_at(int fd, const void* data, size_t bytes, int64_t offset);  // may write less than asked
  virtual int reserve(int fd, int64_t bytes);  // returns -EOPNOTSUPP where the file system can't
  virtual int sync(int fd);                    // makes data and length durable
  virtual int close(int fd);
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to);  // replaces `to`
  virtual int link(const std::filesystem::path& from, const std::filesystem::path& to);    // gives a file another name
  // Swaps two existing paths in one step.
  virtual int exchange(const std::filesystem::path& a, const std::filesystem::path& b);
  virtual int remove(const std::filesystem::path& path);       // removes a file or an empty folder
  virtual int make_folder(const std::filesystem::path& path);  // returns -EEXIST if anything is there already
  virtual int sync_folder(const std::filesystem::path& path);  // makes the names in it durable

  // Opens a regular file with these flags of open(2). Anything else is -EINVAL (a folder -EISDIR) and is neither opened
  // nor waited for.
  int open(const std::filesystem::path& path, int flags) const;
  int stat(const std::filesystem::path& path, struct stat& info) const;   // of what a link leads to, where it may lead
  int lstat(const std::filesystem::path& path, struct stat& info) const;  // of a link itself
  int list(const std::filesystem::path& folder, std::vector<std::string>& names) const;  // in no order

  static FileSystem& system();

 private:
  class Place;

  std::filesystem::path folder_;  // empty: serves all paths
};

}  // namespace herd
