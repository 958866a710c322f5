// The fixture of tests whose ranks are on several hosts, as far as they know, and the wire that joins them: TCP, or
// what HERD_TEST_WIRE names (ctest runs these programs once with each). UCX is skipped in builds without it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "herd/comm/fork_world.h"
#include "herd/transport/wire.h"

namespace herd::testing_support {

inline transport::WireKind tested_wire() {
  const char* named = std::getenv("HERD_TEST_WIRE");
  return named != nullptr && std::string(named) == "ucx" ? transport::WireKind::kUcx : transport::WireKind::kTcp;
}

inline WorldOptions on_hosts(std::vector<int> host_of) {
  WorldOptions options;
  options.host_of = std::move(host_of);
  options.wire = tested_wire();
  return options;
}

inline WorldOptions on_hosts_of_one_rank(int num_ranks) { return one_rank_per_host(num_ranks, tested_wire()); }

class BetweenHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (tested_wire() == transport::WireKind::kUcx && transport::ucx_version().empty()) {
      GTEST_SKIP() << "this build has no UCX";
    }
  }
};

}  // namespace herd::testing_support
