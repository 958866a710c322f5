#include "herd/storage/file_kind.h"

#include <cerrno>

#include "herd/base/error.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

// Returns 0 where nothing is at the path.
mode_t type_of(const fs::path& path, int refusal, const struct stat& info) {
  if (refusal == -ENOENT || refusal == -ENOTDIR) return 0;
  if (refusal < 0) throw_errno(Code::kStorage, "look at " + path.string(), -refusal);
  return info.st_mode & S_IFMT;
}

mode_t own_type_of(const fs::path& path, const FileSystem& files) {
  struct stat info {};
  const int refusal = files.lstat(path, info);
  return type_of(path, refusal, info);
}

}  // namespace

FileKind kind_of(const fs::path& path, const FileSystem& files) {
  struct stat info {};
  const int refusal = files.stat(path, info);
  switch (type_of(path, refusal, info)) {
    case 0:
      return FileKind::kNothing;
    case S_IFREG:
      return FileKind::kFile;
    case S_IFDIR:
      return FileKind::kFolder;
    default:
      return FileKind::kOther;
  }
}

bool is_file(const fs::path& path, const FileSystem& files) { return kind_of(path, files) == FileKind::kFile; }

bool is_folder(const fs::path& path, const FileSystem& files) { return kind_of(path, files) == FileKind::kFolder; }

bool is_link(const fs::path& path, const FileSystem& files) { return own_type_of(path, files) == S_IFLNK; }

bool is_taken(const fs::path& path, const FileSystem& files) { return own_type_of(path, files) != 0; }

std::vector<fs::path> entries_of(const fs::path& folder, const FileSystem& files) {
  std::vector<std::string> names;
  const int refusal = files.list(folder, names);
  if (refusal < 0 && refusal != -ENOENT) throw_errno(Code::kStorage, "list the folder " + folder.string(), -refusal);
  std::vector<fs::path> entries;
  for (const std::string& name : names) entries.push_back(folder / name);
  return entries;
}

}  // namespace herd
