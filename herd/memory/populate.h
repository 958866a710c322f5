// Makes a program's own memory real before it is written. A page that is touched for the first time costs a fault,
// which takes longer than to move its 4 KiB; the kernel makes many at once in two thirds of the time. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace herd {

// Makes the pages of [begin, begin + bytes) real, which begin and end at pages. Returns false with errno in `error`,
// for instance EINVAL before Linux 5.14.
bool populate(std::byte* begin, int64_t bytes, int& error);
// Does so for each MiB that nothing has touched yet, as far as one page of it tells, of memory that the caller is about
// to write whole. Does nothing where the kernel can't.
void populate_untouched(void* data, int64_t bytes);

}  // namespace herd
