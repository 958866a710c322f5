// Maps a whole file for reading; pages come in as they are touched. Throws kStorage if the file can't be opened or
// mapped. REQUIRES that the file does not shrink while it is mapped: herd replaces its files by rename and never cuts
// them. Threads: reads from any.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "herd/storage/file_system.h"

namespace herd {

class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path, const FileSystem& files = FileSystem::system());
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace herd
