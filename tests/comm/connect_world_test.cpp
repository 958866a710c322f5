// Which wire joins hosts, by the settings of one rank. Worlds themselves are connected by every test of several hosts.
#include "herd/comm/connect_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/transport/network_interface.h"
#include "tests/support/expect_error.h"

namespace herd::comm {
namespace {

using testing::HasSubstr;

class ConnectWorld : public testing::Test {
 protected:
  void SetUp() override {
    if (transport::has_rdma()) GTEST_SKIP() << "this host has RDMA";
  }
};

TEST_F(ConnectWorld, EncryptsUnlessTheNetworkIsDeclaredTrusted) {
  launch::Environment environment;
  EXPECT_THAT(wire_here(environment), HasSubstr("tcp inside TLS"));
  environment.trusted_network = true;
  EXPECT_THAT(wire_here(environment), HasSubstr("neither encrypted nor authenticated"));
  environment.transport = "ucx";
  EXPECT_THAT(wire_here(environment), HasSubstr("neither encrypted nor authenticated"));
}

TEST_F(ConnectWorld, RefusesUcxWithoutATrustedNetwork) {
  launch::Environment environment;
  environment.transport = "ucx";
  EXPECT_ERROR(wire_here(environment), Code::kBadConfig, "HERD_TRANSPORT=ucx", "HERD_TRUSTED_NETWORK is not 1",
               "fix: HERD_TRANSPORT=tcp");
}

TEST_F(ConnectWorld, EncryptsWhereTcpIsAskedFor_OnATrustedNetworkToo) {
  launch::Environment environment;
  environment.transport = "tcp";
  environment.trusted_network = true;
  EXPECT_THAT(wire_here(environment), HasSubstr("tcp inside TLS"));
}

}  // namespace
}  // namespace herd::comm
