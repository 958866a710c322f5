// Maps a whole text for reading, which may be larger than memory; pages come in as they are touched. Throws kStorage if
// the file can't be opened or mapped. A page that can't be read, since the file was cut meanwhile or its drive fails,
// ends the process with a message (base/mapped_range.h); ReadableFile throws. Threads: reads from any.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "herd/base/mapped_range.h"
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
  std::optional<MappedRange> named_;
};

}  // namespace herd
