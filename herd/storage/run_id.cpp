#include "herd/storage/run_id.h"

#include <sys/random.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "herd/base/error.h"

namespace herd {

std::string new_run_id() {
  uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    throw_errno(Code::kStorage, "draw the random id of a run", errno);
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, bits);
  return text;
}

bool is_run_id(std::string_view text) {
  constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";
  return !text.empty() && text.size() <= 64 && text.find_first_not_of(kAlphabet) == text.npos;
}

}  // namespace herd
