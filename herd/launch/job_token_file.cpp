#include "herd/launch/job_token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "herd/base/descriptor.h"
#include "herd/base/error.h"

namespace herd::launch {
namespace {

constexpr mode_t kGroupAndOthers = S_IRWXG | S_IRWXO;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what, const std::string& fix) {
  throw Error(Code::kBadConfig, "the token file " + path.string() + " " + what + "\n  fix: " + fix);
}

std::string octal(mode_t mode) {
  std::ostringstream text;
  text << std::oct << (mode & 07777);
  return text.str();
}

void check_owner(const std::filesystem::path& path, const struct stat& file_status) {
  if (file_status.st_uid != ::geteuid() && file_status.st_uid != 0) {
    refuse(path, "belongs to user " + std::to_string(file_status.st_uid) + ", who can change it",
           "a file of your own with the token");
  }
  if ((file_status.st_mode & kGroupAndOthers) != 0)
    refuse(path, "can be read or written by others: its mode is " + octal(file_status.st_mode),
           "chmod 600 " + path.string());
}

}  // namespace

std::string read_token_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat file_status {};
  if (file.fd < 0 || ::fstat(file.fd, &file_status) != 0) {
    refuse(path, std::string("can't be read: ") + std::strerror(errno),
           "(umask 077; openssl rand -hex 32 > " + path.string() + "), once, and copy the file to every node");
  }
  check_owner(path, file_status);
  std::array<char, 4096> text{};
  const ssize_t got = ::read(file.fd, text.data(), text.size());
  std::istringstream words(std::string(text.data(), static_cast<size_t>(got > 0 ? got : 0)));
  std::string token;
  if (!(words >> token)) refuse(path, "holds no token", "(umask 077; openssl rand -hex 32 > " + path.string() + ")");
  return token;
}

}  // namespace herd::launch
