#include "herd/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "herd/base/error.h"

namespace herd {
namespace {

// Returns without waiting, also from a FIFO; of a regular file, reads wait as ever.
Descriptor open_at_once(const std::filesystem::path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

Descriptor open_regular_file(const std::filesystem::path& path) {
  Descriptor file = open_at_once(path);
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0) refuse_to_read(path, errno);
  if (!S_ISREG(info.st_mode)) refuse_to_read(path, S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  return file;
}

void refuse_to_read(const std::filesystem::path& path, int errno_value) {
  const std::string what = "open " + path.string();
  if (errno_value == EISDIR) throw_errno(Code::kStorage, what + ", which must be a file", errno_value);
  if (errno_value != EINVAL) throw_errno(Code::kStorage, what, errno_value);
  throw Error(Code::kStorage,
              what + ", which must be a file: it is a FIFO, a socket or a device\n  fix: a regular file in its place");
}

std::optional<std::string> read_regular_file(const std::filesystem::path& path, size_t most_bytes) {
  constexpr size_t kPiece = 1 << 16;
  const Descriptor file = open_at_once(path);
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::string text;
  while (text.size() < most_bytes) {
    const size_t done = text.size(), wanted = std::min(kPiece, most_bytes - done);
    text.resize(done + wanted);
    const ssize_t got = ::read(file.fd, text.data() + done, wanted);
    text.resize(done + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR) return std::nullopt;
    if (got == 0) break;
  }
  return text;
}

}  // namespace herd
