#include "herd/cli/host_probe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "herd/comm/inproc_world.h"
#include "herd/topology/text.h"

namespace herd::cli {
namespace {

Topology probed(Communicator& comm, const ProbedOperation& operation) {
  HostProbe probe(comm, operation);
  probe.sample();
  return probe.applied_to(parse_topology(comm.topology()), 200);
}

// Also where ranks outnumber cores, and where neighbours by number live on different hosts.
TEST(HostProbe, FindsTheSameOnAllRanks) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}, {0, 1, 0}}) {
    const auto ranks = static_cast<int>(hosts.size());
    for (const int64_t bytes : {16, 3000, 100'000}) {
      std::vector<std::string> found(hosts.size());
      const auto body = [&](Communicator& comm) {
        found[static_cast<size_t>(comm.rank())] =
            to_text(probed(comm, {bytes / 4 / ranks * 4 * ranks, DType::kF32, ReduceOp::kSum, true, false}));
      };
      run_inproc(ranks, body, hosts.back() == 0 && hosts[1] == 0 ? std::vector<int>{} : hosts);
      for (const std::string& one : found) EXPECT_EQ(one, found[0]) << ranks << " ranks, " << bytes << " B";
    }
  }
}

// What the operation does not do is not timed, and stays as it was.
TEST(HostProbe, ReplacesWhatItHasTimed) {
  run_inproc(2, [](Communicator& comm) {
    const Host before = parse_topology(comm.topology()).hosts.at(0);
    const Host sum = probed(comm, {4096, DType::kF32, ReduceOp::kSum, true, false}).hosts.at(0);
    EXPECT_NE(sum.step_us, before.step_us);
    EXPECT_NE(sum.shared_write_factor, before.shared_write_factor);
    EXPECT_NE(sum.peer_read_factor, before.peer_read_factor);
    const Host gather = probed(comm, {4096, DType::kF32, std::nullopt, false, false}).hosts.at(0);
    EXPECT_EQ(gather.shared_write_factor, before.shared_write_factor);
    EXPECT_NE(gather.stage_read_factor, before.stage_read_factor);
  });
}

}  // namespace
}  // namespace herd::cli
