#include "herd/storage/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "herd/base/descriptor.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

template <typename T>
T or_errno(T result) {
  return result < 0 ? static_cast<T>(-errno) : result;
}

// Returns the components of a path, without those that lead nowhere else.
std::vector<std::string> components_of(const fs::path& path) {
  std::vector<std::string> components;
  for (const fs::path& component : path)
    if (!component.empty() && component != ".") components.push_back(component.string());
  return components;
}

bool is_symbolic_link(int folder, const std::string& name) {
  struct stat info {};
  return ::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
}

// Opens a folder in another one. For a link the kernel says that it is no folder; this says that it is a link.
int open_folder_in(int folder, const std::string& name, int flags) {
  const int fd = or_errno(::openat(folder, name.c_str(), flags | O_DIRECTORY | O_CLOEXEC));
  return fd == -ENOTDIR && is_symbolic_link(folder, name) ? -ELOOP : fd;
}

}  // namespace

// Holds the folder that a path is in, as a descriptor, and the path's name in it.
class FileSystem::Place {
 public:
  Place(const fs::path& folder, const fs::path& path) {
    if (folder.empty()) {
      name_ = path.string();
      return;
    }
    const std::vector<std::string> above = components_of(folder);
    std::vector<std::string> names = components_of(path);
    const bool is_below = names.size() >= above.size() && std::equal(above.begin(), above.end(), names.begin()) &&
                          folder.is_absolute() == path.is_absolute();
    names.erase(names.begin(), names.begin() + static_cast<int64_t>(std::min(above.size(), names.size())));
    if (!is_below || std::find(names.begin(), names.end(), "..") != names.end()) {
      error_ = -EXDEV;
      return;
    }
    nofollow_ = names.empty() ? 0 : O_NOFOLLOW;  // the folder's own path may be a link
    name_ = names.empty() ? "." : names.back();
    enter(open_folder_in(AT_FDCWD, folder, O_PATH));
    for (size_t i = 0; i + 1 < names.size() && error_ == 0; ++i)
      enter(open_folder_in(folder_.fd, names[i], O_PATH | O_NOFOLLOW));
  }

  int error() const { return error_; }  // 0, or -errno where the folder can't be reached
  int folder() const { return folder_.fd >= 0 ? folder_.fd : AT_FDCWD; }
  const char* name() const { return name_.c_str(); }
  int nofollow() const { return nofollow_; }  // O_NOFOLLOW or 0

 private:
  void enter(int fd) {
    if (fd < 0) error_ = fd;
    if (fd >= 0) folder_ = Descriptor(fd);
  }

  Descriptor folder_;
  std::string name_;
  int nofollow_ = 0, error_ = 0;
};

FileSystem::FileSystem(fs::path folder) : folder_(folder.empty() ? "." : std::move(folder)) {}

int FileSystem::create(const fs::path& path, int permissions) {
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  return or_errno(
      ::openat(at.folder(), at.name(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(permissions)));
}

int64_t FileSystem::write_at(int fd, const void* data, size_t bytes, int64_t offset) {
  return or_errno(static_cast<int64_t>(::pwrite(fd, data, bytes, offset)));
}

int FileSystem::reserve(int fd, int64_t bytes) { return or_errno(::fallocate(fd, 0, 0, bytes)); }

int FileSystem::sync(int fd) { return or_errno(::fsync(fd)); }

int FileSystem::close(int fd) { return or_errno(::close(fd)); }

int FileSystem::rename(const fs::path& from, const fs::path& to) {
  const Place old_place(folder_, from), new_place(folder_, to);
  if (old_place.error() < 0) return old_place.error();
  if (new_place.error() < 0) return new_place.error();
  return or_errno(::renameat(old_place.folder(), old_place.name(), new_place.folder(), new_place.name()));
}

int FileSystem::link(const fs::path& from, const fs::path& to) {
  const Place old_place(folder_, from), new_place(folder_, to);
  if (old_place.error() < 0) return old_place.error();
  if (new_place.error() < 0) return new_place.error();
  return or_errno(::linkat(old_place.folder(), old_place.name(), new_place.folder(), new_place.name(), 0));
}

int FileSystem::exchange(const fs::path& a, const fs::path& b) {
  const Place first(folder_, a), second(folder_, b);
  if (first.error() < 0) return first.error();
  if (second.error() < 0) return second.error();
  return or_errno(::renameat2(first.folder(), first.name(), second.folder(), second.name(), RENAME_EXCHANGE));
}

int FileSystem::remove(const fs::path& path) {
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  const int result = or_errno(::unlinkat(at.folder(), at.name(), 0));
  return result == -EISDIR ? or_errno(::unlinkat(at.folder(), at.name(), AT_REMOVEDIR)) : result;
}

int FileSystem::make_folder(const fs::path& path) {
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  return or_errno(::mkdirat(at.folder(), at.name(), 0755));
}

int FileSystem::sync_folder(const fs::path& path) {
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  const int fd = open_folder_in(at.folder(), at.name(), O_RDONLY | at.nofollow());
  if (fd < 0) return fd;
  const int result = or_errno(::fsync(fd));
  ::close(fd);
  return result == -EINVAL ? 0 : result;  // some file systems can't sync a folder; their renames are ordered
}

int FileSystem::open(const fs::path& path, int flags) const {
  const auto check = [](const struct stat& info) {
    if (S_ISREG(info.st_mode)) return 0;
    return S_ISLNK(info.st_mode) ? -ELOOP : S_ISDIR(info.st_mode) ? -EISDIR : -EINVAL;
  };
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  struct stat info {};
  // To open a device may already do something, so its kind is looked at before and, as it may change, afterwards.
  const int follows = at.nofollow() != 0 ? AT_SYMLINK_NOFOLLOW : 0;
  const int before = or_errno(::fstatat(at.folder(), at.name(), &info, follows));
  if (before < 0 && !(before == -ENOENT && (flags & O_CREAT) != 0)) return before;
  if (const int refusal = before < 0 ? 0 : check(info); refusal < 0) return refusal;
  Descriptor file(or_errno(::openat(at.folder(), at.name(), flags | at.nofollow() | O_NONBLOCK | O_CLOEXEC, 0644)));
  if (file.fd < 0) return file.fd;
  if (::fstat(file.fd, &info) < 0) return -errno;
  if (const int refusal = check(info); refusal < 0) return refusal;
  return std::exchange(file.fd, -1);
}

int FileSystem::stat(const fs::path& path, struct stat& info) const {
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  return or_errno(::fstatat(at.folder(), at.name(), &info, at.nofollow() != 0 ? AT_SYMLINK_NOFOLLOW : 0));
}

int FileSystem::lstat(const fs::path& path, struct stat& info) const {
  const Place at(folder_, path);
  if (at.error() < 0) return at.error();
  return or_errno(::fstatat(at.folder(), at.name(), &info, AT_SYMLINK_NOFOLLOW));
}

int FileSystem::list(const fs::path& folder, std::vector<std::string>& names) const {
  const Place at(folder_, folder);
  if (at.error() < 0) return at.error();
  const int fd = open_folder_in(at.folder(), at.name(), O_RDONLY | at.nofollow());
  if (fd < 0) return fd;
  DIR* entries = ::fdopendir(fd);
  if (entries == nullptr) {
    const int refusal = -errno;
    ::close(fd);
    return refusal;
  }
  errno = 0;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int refusal = -errno;
  ::closedir(entries);
  return refusal;
}

FileSystem& FileSystem::system() {
  static FileSystem instance;
  return instance;
}

}  // namespace herd
