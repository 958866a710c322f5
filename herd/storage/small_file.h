// A small file that lies beside weights, such as a tokenizer: its bytes, and who may read and write it. A copy is not
// open to more users than its source.   Threads: pure, but for read and write (any thread, other files).
#pragma once

#include <filesystem>
#include <string>

#include "herd/storage/file_system.h"

namespace herd {

struct SmallFile {
  SmallFile(std::string content = {}, int permissions = kFilePermissions)
      : bytes(std::move(content)), mode(permissions) {}
  SmallFile(const char* content) : SmallFile(std::string(content)) {}
  std::string bytes;
  int mode;  // the nine bits of permissions; the umask of the process that writes applies, too
  bool operator==(const SmallFile&) const = default;
};

// Follows a link where `files` does. Throws kStorage where the file cannot be read.
SmallFile read_small_file(const std::filesystem::path& path, const FileSystem& files = FileSystem::system());
// Replaces the file at once or not at all. Throws as AtomicFile.
void write_small_file(const std::filesystem::path& path, const SmallFile& file,
                      FileSystem& files = FileSystem::system());

}  // namespace herd
