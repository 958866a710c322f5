// Reads a file a piece at a time, each with one call of the system. It notices a file that gets shorter meanwhile,
// where touching a mapping of it would kill the process. Throws kStorage if the system refuses. Threads: reads from
// any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>

#include "herd/base/descriptor.h"
#include "herd/storage/file_system.h"

namespace herd {

class ReadableFile {
 public:
  explicit ReadableFile(std::filesystem::path path, const FileSystem& files = FileSystem::system());
  int64_t size() const { return size_; }  // bytes when it was opened
  const std::filesystem::path& path() const { return path_; }
  // Fills `out` with the bytes from `offset` on, or with as many as the file has now, and returns how many.
  int64_t read_at(int64_t offset, std::span<std::byte> out) const;
  // Tells whether the file's size or its time of writing are others than when it was opened.
  bool has_changed() const;
  std::string text() const;  // returns all bytes, or as many as the file still has

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t size_ = 0;
  struct timespec written_ = {};
};

}  // namespace herd
