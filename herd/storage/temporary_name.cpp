#include "herd/storage/temporary_name.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <climits>
#include <string>

#include "herd/base/process_state.h"
#include "herd/storage/atomic_folder.h"
#include "herd/storage/file_kind.h"

namespace herd {
namespace {

// Returns <name> of a file `<name>.tmp.<pid>.<n>`; empty for other files, and while process <pid> runs on this machine.
std::string stale_temporary_of(const std::string& file) {
  const size_t mark = file.rfind(".tmp.");
  if (mark == std::string::npos || mark == 0) return "";
  int64_t pid = 0, count = 0;
  const char* end = file.data() + file.size();
  const auto first = std::from_chars(file.data() + mark + 5, end, pid);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' || pid <= 0 || pid > INT_MAX) return "";
  const auto second = std::from_chars(first.ptr + 1, end, count);
  if (second.ec != std::errc() || second.ptr != end) return "";
  return is_running(static_cast<int>(pid)) ? "" : file.substr(0, mark);
}

}  // namespace

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<int64_t> counter{0};
  return path.string() + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
}

void remove_stale_temporaries(const std::filesystem::path& folder, FileSystem& files) {
  for (const auto& path : entries_of(folder, files)) {
    if (!stale_temporary_of(path.filename().string()).empty() && !is_folder(path, files)) files.remove(path);
  }
}

void remove_stale_temporaries_of(const std::filesystem::path& path, FileSystem& files) {
  for (const auto& beside : entries_of(folder_of(path), files)) {
    if (stale_temporary_of(beside.filename().string()) == path.filename()) remove_tree(beside, files);
  }
}

}  // namespace herd
