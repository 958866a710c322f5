#include "herd/transport/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/transport/network_interface.h"

namespace herd::transport {
namespace {

using testing::ElementsAre;

TEST(Hosts, AreNumberedInTheOrderOfTheirFirstRanks) {
  EXPECT_THAT(number_hosts({"b", "a", "b", "c", "a"}), ElementsAre(0, 1, 0, 2, 1));
}

TEST(Hosts, AProcessIsOnOneHostWithItself) { EXPECT_EQ(host_identity(), host_identity()); }

TEST(NetworkInterface, TheLoopbackReachesTheLoopback) {
  for (const NetworkInterface& one : network_interfaces()) {
    if (!one.loopback) continue;
    EXPECT_EQ(interface_towards("127.0.0.1"), one.name);
    return;
  }
  GTEST_SKIP() << "no loopback here";
}

TEST(NetworkInterface, AnUnknownHostIsReachedByNone) { EXPECT_EQ(interface_towards("no such host"), ""); }

}  // namespace
}  // namespace herd::transport
