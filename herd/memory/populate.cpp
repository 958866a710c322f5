#include "herd/memory/populate.h"

#include <sys/mman.h>

#include <cerrno>

#include "herd/base/units.h"
#include "herd/memory/shared_memory.h"

namespace herd {
namespace {

constexpr int kPopulate = 23;  // MADV_POPULATE_WRITE of Linux 5.14, which older headers lack
constexpr int64_t kStretch = 1 << 20;

bool is_touched(std::byte* page) {
  unsigned char resident = 0;
  return mincore(page, static_cast<size_t>(kPageBytes), &resident) != 0 || (resident & 1) != 0;
}

}  // namespace

bool populate(std::byte* begin, int64_t bytes, int& error) {
  do {
    error = madvise(begin, static_cast<size_t>(bytes), kPopulate) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  return error == 0;
}

void populate_untouched(void* data, int64_t bytes) {
  auto* const first = static_cast<std::byte*>(data);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data));
  int error = 0;
  for (int64_t at = round_up(address, kPageBytes) - address; at + kStretch <= bytes && error == 0; at += kStretch) {
    if (!is_touched(first + at + kStretch / 2 / kPageBytes * kPageBytes)) populate(first + at, kStretch, error);
  }
}

}  // namespace herd
