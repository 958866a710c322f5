#include "herd/storage/atomic_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/temporary_name.h"

namespace herd {
namespace {

std::string bytes_free(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return "an unknown number of bytes";
  const double bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  return std::to_string(static_cast<int64_t>(bytes)) + " bytes (" + format_bytes(bytes) + ")";
}

bool is_out_of_room(int errno_value) { return errno_value == ENOSPC || errno_value == EDQUOT || errno_value == EFBIG; }

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, FileSystem& files, int permissions)
    : files_(files), path_(std::move(path)) {
  do {
    temporary_ = temporary_name(path_);
    fd_ = files_.create(temporary_, permissions);
  } while (fd_ == -EEXIST);  // left by a killed process that had this one's id
  if (fd_ < 0) {
    throw_errno(Code::kStorage, "create " + temporary_.string() + " (to become " + path_.string() + ")", -fd_);
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) discard();
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) files_.close(fd_);
  fd_ = -1;
  files_.remove(temporary_);
}

void AtomicFile::fail(const std::string& what, int errno_value) {
  if (!is_out_of_room(errno_value)) throw_errno(Code::kStorage, what + " " + path_.string(), errno_value);
  const int64_t needed = std::max(size_, reserved_);
  throw Error(Code::kStorage,
              what + " " + path_.string() + ": the file needs " + (needed > size_ ? "" : "more than ") +
                  std::to_string(needed) + " bytes (" + format_bytes(static_cast<double>(needed)) + "), " +
                  bytes_free(folder_of(path_)) + " are free (" + std::generic_category().message(errno_value) +
                  ")\n  fix: free space there, or write to another disk; what stood at this path before is intact");
}

void AtomicFile::reserve(int64_t bytes) {
  reserved_ = bytes;
  if (bytes <= 0) return;
  const int result = files_.reserve(fd_, bytes);
  if (result < 0 && result != -EOPNOTSUPP && result != -ENOSYS) fail("reserve room for", -result);
}

void AtomicFile::put(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t written = files_.write_at(fd_, bytes.data(), bytes.size(), offset);
    if (written == -EINTR) continue;
    if (written <= 0) {
      fail("write " + std::to_string(bytes.size()) + " bytes at byte " + std::to_string(offset) + " of",
           written < 0 ? static_cast<int>(-written) : ENOSPC);
    }
    offset += written;
    size_ = std::max(size_, offset);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) { put(size_, bytes); }

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  HERD_CHECK_LE(offset + static_cast<int64_t>(bytes.size()), size_);
  put(offset, bytes);
}

void AtomicFile::commit() {
  HERD_CHECK(!committed_ && fd_ >= 0, "commit() is called once");
  HERD_CHECK(reserved_ <= size_, "the file is shorter than what was reserved");
  if (const int result = files_.sync(fd_); result < 0) fail("sync", -result);
  const int closed = files_.close(fd_);
  fd_ = -1;
  if (closed < 0) fail("close", -closed);
  if (const int result = files_.rename(temporary_, path_); result < 0) fail("rename to", -result);
  committed_ = true;
  if (const int result = files_.sync_folder(folder_of(path_)); result < 0) fail("sync the folder of", -result);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text, FileSystem& files) {
  AtomicFile file(path, files);
  file.write(text);
  file.commit();
}

void make_folders(const std::filesystem::path& path, FileSystem& files) {
  if (path.empty() || is_folder(path, files)) return;
  make_folders(path.parent_path(), files);
  const int result = files.make_folder(path);
  if (result < 0 && !(result == -EEXIST && is_folder(path, files))) {
    throw_errno(Code::kStorage, "make the folder " + path.string(), -result);
  }
  if (const int synced = files.sync_folder(folder_of(path)); synced < 0) {
    throw_errno(Code::kStorage, "sync the folder of " + path.string(), -synced);
  }
}

}  // namespace herd
