#include "herd/storage/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "herd/base/error.h"
#include "herd/base/regular_file.h"

namespace herd {

ReadableFile::ReadableFile(std::filesystem::path path, const FileSystem& files)
    : path_(std::move(path)), file_(files.open(path_, O_RDONLY)) {
  if (file_.fd < 0) refuse_to_read(path_, -file_.fd);
  struct stat info {};
  if (::fstat(file_.fd, &info) != 0) throw_errno(Code::kStorage, "look at " + path_.string(), errno);
  size_ = info.st_size;
  written_ = info.st_mtim;
}

bool ReadableFile::has_changed() const {
  struct stat info {};
  if (::fstat(file_.fd, &info) != 0) throw_errno(Code::kStorage, "look at " + path_.string(), errno);
  return info.st_size != size_ || info.st_mtim.tv_sec != written_.tv_sec || info.st_mtim.tv_nsec != written_.tv_nsec;
}

int64_t ReadableFile::read_at(int64_t offset, std::span<std::byte> out) const {
  int64_t done = 0;
  while (done < static_cast<int64_t>(out.size())) {
    const auto rest = out.subspan(static_cast<size_t>(done));
    const ssize_t got = ::pread(file_.fd, rest.data(), rest.size(), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw_errno(Code::kStorage,
                  "read " + std::to_string(rest.size()) + " bytes at byte " + std::to_string(offset + done) + " of " +
                      path_.string(),
                  errno);
    }
    if (got == 0) break;
    done += got;
  }
  return done;
}

std::string ReadableFile::text() const {
  std::string text(static_cast<size_t>(size_), '\0');
  text.resize(static_cast<size_t>(read_at(0, std::as_writable_bytes(std::span(text)))));
  return text;
}

}  // namespace herd
