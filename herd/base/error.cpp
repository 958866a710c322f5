#include "herd/base/error.h"

#include <cerrno>
#include <system_error>

#include "herd/base/printable.h"

namespace herd {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kBadConfig:
      return "kBadConfig";
    case Code::kOverBudget:
      return "kOverBudget";
    case Code::kTimeout:
      return "kTimeout";
    case Code::kPeerLost:
      return "kPeerLost";
    case Code::kAborted:
      return "kAborted";
    case Code::kCorruptFile:
      return "kCorruptFile";
    case Code::kStorage:
      return "kStorage";
    case Code::kBug:
      return "kBug";
  }
  return "unknown code";
}

Error::Error(Code code, const std::string& message)
    : std::runtime_error(std::string(code_name(code)) + ": " + printable_lines(message)),
      code_(code),
      message_(printable_lines(message)) {}

namespace {

std::string_view fix_of(int errno_value) {
  switch (errno_value) {
    case EACCES:
    case EPERM:
      return "give this user the right to it (ls -ld shows whose it is), or take another path";
    case ENOENT:
      return "a path that is there";
    case ENOTDIR:
      return "a path that leads through folders alone";
    case EISDIR:
      return "the path of a file, not of a folder";
    case EEXIST:
    case ENOTEMPTY:
      return "another path, or move away what is there";
    case ELOOP:
      return "a path whose links don't lead back to themselves; below the folder of a run or a checkpoint, no link at "
             "all (that folder itself may be one)";
    case ENAMETOOLONG:
      return "a shorter path";
    case EROFS:
      return "a path on a file system that may be written";
    case ENOSPC:
    case EDQUOT:
      return "free space there, or take another disk";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f), or take a file system that holds larger ones";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case EAGAIN:
      return "raise the limit on processes (ulimit -u), or start fewer ranks";
    case ENOMEM:
      return "free memory, or start fewer ranks";
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
      return "the disk or the network behind it fails: see dmesg, and mount it again or take another";
    default:
      return "this is the system's refusal: see its limits (ulimit -a) and its log (dmesg)";
  }
}

}  // namespace

void throw_errno(Code code, const std::string& what, int errno_value) {
  throw Error(code, what + ": " + std::generic_category().message(errno_value) + " (errno " +
                        std::to_string(errno_value) + ")\n  fix: " + std::string(fix_of(errno_value)));
}

}  // namespace herd
