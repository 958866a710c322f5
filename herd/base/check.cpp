#include "herd/base/check.h"

#include "herd/base/error.h"

namespace herd {

void check_failed(const char* file, int line, const std::string& what) {
  throw Error(Code::kBug, std::string(file) + ":" + std::to_string(line) + ": " + what);
}

}  // namespace herd
