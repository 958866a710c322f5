// Makes a file appear whole or not at all: it is written beside its place under a temporary name, made durable, and
// renamed.
//
//   AtomicFile file("runs/x/manifest.json");
//   file.write(text);
//   file.commit();
//
// Until commit() returns, the path keeps its old content; afterwards the new bytes are there and durable (file and
// folder synced). Without commit() the destructor removes the temporary file. After a kill it stays behind as
// `<name>.tmp.<pid>.<n>`, which no reader opens and remove_stale_temporaries() deletes.
// A full disk, a quota or a limit throws kStorage with the bytes needed and the bytes free. Other refusals throw
// kStorage with the system's reason. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "herd/storage/file_system.h"

namespace herd {

class AtomicFile {
 public:
  // Creates the temporary file.
  explicit AtomicFile(std::filesystem::path path, FileSystem& files = FileSystem::system(),
                      int permissions = kFilePermissions);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void reserve(int64_t bytes);  // takes the room now, so that a full disk shows before the work is done
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void write_at(int64_t offset, std::span<const std::byte> bytes);  // overwrites bytes already written
  void commit();
  int64_t size() const { return size_; }  // bytes written
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(const std::string& what, int errno_value);
  void put(int64_t offset, std::span<const std::byte> bytes);
  void discard() noexcept;

  FileSystem& files_;
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  int64_t size_ = 0, reserved_ = 0;
  bool committed_ = false;
};

// Writes a whole file in one go.
void write_file_atomically(const std::filesystem::path& path, std::string_view text,
                           FileSystem& files = FileSystem::system());

// Makes a folder and its missing parents, each durable in its own parent. Throws kStorage.
void make_folders(const std::filesystem::path& path, FileSystem& files = FileSystem::system());

}  // namespace herd
