#include <cstring>

#include "herd/kernels/string_copy_internal.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace herd::kernels {

#if defined(__x86_64__)

bool has_string_copy() {
  static const bool has = [] {
    constexpr unsigned kEnhancedStrings = 1u << 9;  // leaf 7, EBX: ERMS
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kEnhancedStrings) != 0;
  }();
  return has;
}

#else

bool has_string_copy() { return false; }

#endif

void string_copy(void* target, const void* source, int64_t bytes) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
#else
  std::memcpy(target, source, static_cast<size_t>(bytes));  // sanitizers see this copy, but not the assembly
#endif
}

}  // namespace herd::kernels
