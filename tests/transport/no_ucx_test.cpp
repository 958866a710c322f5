// What a build without UCX says: this program has its stand-in linked in, in front of the library's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/transport/wire.h"

namespace herd::transport {
namespace {

TEST(NoUcx, NamesWhatIsMissingAndTheFix) {
  EXPECT_EQ(ucx_version(), "");
  try {
    open_ucx({});
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(), testing::HasSubstr("transport \"ucx\""));
    EXPECT_THAT(error.message(), testing::HasSubstr("fix: install libucx-dev, and configure with -DHERD_UCX=ON"));
  }
}

}  // namespace
}  // namespace herd::transport
