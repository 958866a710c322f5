#include "herd/storage/file_kind.h"

#include <cerrno>

#include "herd/base/error.h"

namespace herd {

namespace fs = std::filesystem;

FileKind kind_of(const fs::path& path) {
  std::error_code failed;
  switch (const fs::file_status status = fs::status(path, failed); status.type()) {
    case fs::file_type::none:
      throw_errno(Code::kStorage, "look at " + path.string(), failed.value());
    case fs::file_type::not_found:
      return FileKind::kNothing;
    case fs::file_type::regular:
      return FileKind::kFile;
    case fs::file_type::directory:
      return FileKind::kFolder;
    default:
      return FileKind::kOther;
  }
}

bool is_file(const fs::path& path) { return kind_of(path) == FileKind::kFile; }

bool is_folder(const fs::path& path) { return kind_of(path) == FileKind::kFolder; }

bool is_taken(const fs::path& path) {
  std::error_code failed;
  const fs::file_type type = fs::symlink_status(path, failed).type();
  if (type == fs::file_type::none) throw_errno(Code::kStorage, "look at " + path.string(), failed.value());
  return type != fs::file_type::not_found;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    entries.push_back(at->path());
  if (failed && failed.value() != ENOENT)
    throw_errno(Code::kStorage, "list the folder " + folder.string(), failed.value());
  return entries;
}

}  // namespace herd
