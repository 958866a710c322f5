// The fixture of tests whose ranks are on several hosts, as far as they know: skipped in builds without UCX.
#pragma once

#include <gtest/gtest.h>

#include "herd/transport/wire.h"

namespace herd::testing_support {

class NeedsUcx : public testing::Test {
 protected:
  void SetUp() override {
    if (transport::ucx_version().empty()) GTEST_SKIP() << "this build has no UCX";
  }
};

}  // namespace herd::testing_support
