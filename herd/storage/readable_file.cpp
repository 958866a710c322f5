#include "herd/storage/readable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "herd/base/error.h"

namespace herd {

ReadableFile::ReadableFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_.fd < 0) throw_errno(Code::kStorage, "open " + path_.string(), errno);
  struct stat info {};
  if (::fstat(file_.fd, &info) != 0) throw_errno(Code::kStorage, "look at " + path_.string(), errno);
  if (!S_ISREG(info.st_mode)) {
    throw_errno(Code::kStorage, "open " + path_.string() + ", which must be a file",
                S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  }
  size_ = info.st_size;
}

int64_t ReadableFile::read_at(int64_t offset, std::span<std::byte> out) const {
  int64_t done = 0;
  while (done < static_cast<int64_t>(out.size())) {
    const auto rest = out.subspan(static_cast<size_t>(done));
    const ssize_t got = ::pread(file_.fd, rest.data(), rest.size(), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(Code::kStorage, "read " + path_.string() + " at byte " + std::to_string(offset), errno);
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace herd
