#include "herd/base/error.h"

#include <system_error>

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
    : std::runtime_error(std::string(code_name(code)) + ": " + message), code_(code), message_(message) {}

void throw_errno(Code code, const std::string& what, int errno_value) {
  throw Error(code, what + ": " + std::generic_category().message(errno_value) + " (errno " +
                        std::to_string(errno_value) + ")");
}

}  // namespace herd
