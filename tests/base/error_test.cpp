#include "herd/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/expect_error.h"

namespace herd {
namespace {

TEST(Error, TheSystemsRefusalsSayWhatToDo_WhicheverItIs) {
  EXPECT_ERROR(throw_errno(Code::kStorage, "write data/x", ENOSPC), Code::kStorage,
               "write data/x: No space left on device (errno 28)\n  fix: free space there");
  EXPECT_ERROR(throw_errno(Code::kStorage, "open x", EACCES), Code::kStorage, "Permission denied",
               "\n  fix: give this");
  for (int refusal = 1; refusal < 134; ++refusal)
    EXPECT_ERROR(throw_errno(Code::kStorage, "do", refusal), Code::kStorage, "do: ", "\n  fix: ");
}

}  // namespace
}  // namespace herd
