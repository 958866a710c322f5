// Defines the one exception of herd, and its codes: each code tells the caller what can be done about the error.
// A message says what failed and the rule with its values; where there is a fix, the last line is "  fix: ...".
// Threads: plain data, pure functions.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace herd {

enum class Code {
  kBadConfig,    // the request can't be met as stated: change it
  kOverBudget,   // a memory tier is too small: the message holds the table of what is live
  kTimeout,      // a deadline passed: the message names who waited for whom
  kPeerLost,     // a peer process is gone
  kAborted,      // somebody called abort(), or another rank failed first
  kCorruptFile,  // a file breaks its format: the message names file, offset and rule
  kStorage,      // the system refused to read or write (disk full, no permission, too little shared memory)
  kBug,          // herd broke its own rule
};

std::string_view code_name(Code code);  // returns "kBadConfig"

class Error : public std::runtime_error {
 public:
  // what() is "<code>: <message>".
  Error(Code code, const std::string& message);
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }  // without the code

 private:
  Code code_;
  std::string message_;
};

// Throws an Error with what the system says. throw_errno(Code::kStorage, "write data/x", ENOSPC) throws "write data/x:
// No space left on device (errno 28)", and on a second line "  fix: free space there, or take another disk".
[[noreturn]] void throw_errno(Code code, const std::string& what, int errno_value);

}  // namespace herd
