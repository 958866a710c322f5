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

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what, const std::string& fix) {
  throw Error(Code::kBadConfig, "the token file " + path.string() + " " + what + "\n  fix: " + fix);
}

std::string octal(mode_t mode) {
  std::ostringstream text;
  text << std::oct << (mode & 07777);
  return text.str();
}

void check_owner(const std::filesystem::path& path, const struct stat& facts) {
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0) {
    refuse(path, "belongs to user " + std::to_string(facts.st_uid) + ", who can change it",
           "a file of your own with the token");
  }
  if ((facts.st_mode & kOthers) != 0)
    refuse(path, "can be read or written by others: its mode is " + octal(facts.st_mode), "chmod 600 " + path.string());
}

}  // namespace

std::string read_token_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (file.fd < 0 || ::fstat(file.fd, &facts) != 0) {
    refuse(path, std::string("can't be read: ") + std::strerror(errno),
           "a file with the job's secret on every node, such as that of openssl rand -hex 32");
  }
  check_owner(path, facts);
  std::array<char, 4096> text{};
  const ssize_t got = ::read(file.fd, text.data(), text.size());
  std::istringstream words(std::string(text.data(), static_cast<size_t>(got > 0 ? got : 0)));
  std::string token;
  if (!(words >> token)) refuse(path, "holds no token", "(umask 077; openssl rand -hex 32 > " + path.string() + ")");
  return token;
}

}  // namespace herd::launch
