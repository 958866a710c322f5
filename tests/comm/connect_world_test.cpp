// Which wire joins hosts, by the settings of one rank. Worlds themselves are connected by every test of several hosts.
#include "herd/comm/connect_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/launch/environment.h"
#include "herd/launch/keys.h"
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

// Runs meet_in_store() on a thread for each rank; returns each rank's environment, or error.
struct Met {
  launch::Environment environment;
  std::string error;
};
std::vector<Met> meet(const std::vector<std::string>& hosts, const std::vector<std::string>& tokens) {
  MemoryStore store;
  std::vector<Met> met(hosts.size());
  std::vector<std::thread> ranks;
  for (size_t i = 0; i < hosts.size(); ++i) {
    ranks.emplace_back([&, i] {
      try {
        launch::Environment settings = launch::parse_settings({{"HERD_TOKEN", tokens[i]}});
        met[i].environment =
            meet_in_store(settings, store, {static_cast<Rank>(i), static_cast<int>(hosts.size()), hosts[i]},
                          std::chrono::steady_clock::now() + std::chrono::seconds(10));
      } catch (const Error& error) {
        met[i].error = error.message();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  return met;
}

TEST(MeetInStore, SharesASecretOfRankZero_OnOneHost) {
  const auto met = meet({"a", "a", "a"}, {"", "mine", ""});
  for (const Met& one : met) {
    EXPECT_EQ(one.error, "");
    EXPECT_EQ(one.environment.num_nodes, 1);
    EXPECT_EQ(one.environment.token, met[0].environment.token);
    EXPECT_EQ(one.environment.job_id, met[0].environment.job_id);
  }
  EXPECT_GE(met[0].environment.token.size(), launch::kMinTokenBytes);
  EXPECT_NE(met[0].environment.token, met[0].environment.job_id);
  EXPECT_NE(met[0].environment.token, meet({"a", "a"}, {"", ""})[0].environment.token);
}

TEST(MeetInStore, UsesTheTokenThatAllHave_OnSeveralHosts) {
  for (const Met& one : meet({"a", "b", "a"}, {"t", "t", "t"})) {
    EXPECT_EQ(one.error, "");
    EXPECT_EQ(one.environment.num_nodes, 2);
    EXPECT_EQ(one.environment.token, "t");
  }
}

TEST(MeetInStore, RefusesSeveralHostsWithoutAToken_OnEveryRank) {
  for (const Met& one : meet({"a", "b", "b"}, {"t", "t", ""})) {
    EXPECT_THAT(one.error, HasSubstr("ranks on 2 hosts need the job's secret, but rank 2 has neither HERD_TOKEN_FILE"));
    EXPECT_THAT(one.error, HasSubstr("fix: HERD_TOKEN_FILE=PATH"));
  }
}

TEST(MeetInStore, RefusesARankOutsideItsWorld) {
  MemoryStore store;
  EXPECT_ERROR(meet_in_store({}, store, {2, 2}, {}), Code::kBadConfig, "a world of 2 ranks has no rank 2");
}

}  // namespace
}  // namespace herd::comm
