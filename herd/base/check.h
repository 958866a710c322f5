// HERD_CHECK finds herd's own bugs: it throws Error{kBug} with the operands. A user's mistake never reaches one.
// Threads: any.
#pragma once

#include <sstream>
#include <string>

namespace herd {

[[noreturn]] void check_failed(const char* file, int line, const std::string& what);

// Returns "3 vs 4", for the comparison macros.
template <typename A, typename B>
std::string check_operands(const A& a, const B& b) {
  std::ostringstream out;
  out << a << " vs " << b;
  return out.str();
}

}  // namespace herd

#define HERD_CHECK(condition, what)                                                                      \
  do {                                                                                                   \
    if (!(condition)) ::herd::check_failed(__FILE__, __LINE__, std::string(#condition) + ": " + (what)); \
  } while (false)

#define HERD_CHECK_OP(a, op, b)                                                                     \
  do {                                                                                              \
    if (!((a)op(b)))                                                                                \
      ::herd::check_failed(__FILE__, __LINE__,                                                      \
                           std::string(#a " " #op " " #b ": ") + ::herd::check_operands((a), (b))); \
  } while (false)
#define HERD_CHECK_EQ(a, b) HERD_CHECK_OP(a, ==, b)
#define HERD_CHECK_LE(a, b) HERD_CHECK_OP(a, <=, b)
#define HERD_CHECK_LT(a, b) HERD_CHECK_OP(a, <, b)
#define HERD_CHECK_GE(a, b) HERD_CHECK_OP(a, >=, b)
