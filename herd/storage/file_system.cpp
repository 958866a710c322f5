#include "herd/storage/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace herd {
namespace {

template <typename T>
T or_errno(T result) {
  return result < 0 ? static_cast<T>(-errno) : result;
}

}  // namespace

int FileSystem::create(const std::filesystem::path& path) {
  return or_errno(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

int64_t FileSystem::write_at(int fd, const void* data, size_t bytes, int64_t offset) {
  return or_errno(static_cast<int64_t>(::pwrite(fd, data, bytes, offset)));
}

int FileSystem::reserve(int fd, int64_t bytes) { return or_errno(::fallocate(fd, 0, 0, bytes)); }

int FileSystem::sync(int fd) { return or_errno(::fsync(fd)); }

int FileSystem::close(int fd) { return or_errno(::close(fd)); }

int FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return or_errno(::rename(from.c_str(), to.c_str()));
}

int FileSystem::link(const std::filesystem::path& from, const std::filesystem::path& to) {
  return or_errno(::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), 0));
}

int FileSystem::exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  return or_errno(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
}

int FileSystem::remove(const std::filesystem::path& path) { return or_errno(::remove(path.c_str())); }

int FileSystem::make_folder(const std::filesystem::path& path) {
  const int result = or_errno(::mkdir(path.c_str(), 0755));
  std::error_code ignored;
  return result == -EEXIST && std::filesystem::is_directory(path, ignored) ? 0 : result;
}

int FileSystem::sync_folder(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -errno;
  const int result = or_errno(::fsync(fd));
  ::close(fd);
  return result == -EINVAL ? 0 : result;  // some file systems can't sync a folder; their renames are ordered
}

FileSystem& FileSystem::system() {
  static FileSystem instance;
  return instance;
}

}  // namespace herd
