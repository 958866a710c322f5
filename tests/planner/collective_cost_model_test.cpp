#include "herd/planner/collective_cost_model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "herd/base/error.h"
#include "herd/collectives/choose.h"
#include "herd/planner/cluster.h"
#include "herd/topology/presets.h"

namespace herd::planner {
namespace {

using program::OpKind;

Mesh mesh(int dp, int tp) {
  Mesh out{.world_size = dp * tp};
  out.axes = {{"dp", {{tp, dp}}}, {"tp", {{1, tp}}}};
  return out;
}

Topology hosts(int count, int ranks) {
  Host host;
  host.ranks = ranks;
  host.cores = ranks;
  return spine_leaf(count, host);
}

// nccl-tests measure 90 GB/s and more for such a message on eight A100 with NVLink, whichever memory it lies in.
TEST(Choose, MovesAGradientBucketAmongDevicesOfAHostAtTheirLinksRate) {
  for (const char* name : {"a100-80gb", "h100-80gb"}) {
    std::ostringstream text;
    text << std::ifstream(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/clusters/" + name + ".toml")
                .rdbuf();
    const Topology topology = parse_cluster(text.str(), name).topology;
    CollectiveRequest request{.collective = Collective::kAllReduce,
                              .num_ranks = 8,
                              .elements = (25 << 20) / 4,
                              .in_place = true,
                              .same_host = true};
    for (const bool direct : {true, false}) {
      request.direct = direct;
      const double us = choose(request, topology).candidates[0].us;
      EXPECT_GT((25 << 20) / us, 50e3) << name << " " << direct;
      EXPECT_LT((25 << 20) / us, 450e3) << name << " " << direct;
    }
  }
}

TEST(GroupTopology, PutsTensorParallelInsideHosts_AndDataParallelAcrossThem) {
  const Topology topology = hosts(4, 8);
  const Topology tp = group_topology(topology, mesh(4, 8), 1), dp = group_topology(topology, mesh(4, 8), 0);
  EXPECT_EQ(tp.hosts.size(), 1u);
  EXPECT_EQ(tp.num_ranks(), 8);
  EXPECT_EQ(dp.hosts.size(), 4u);
  EXPECT_EQ(dp.num_ranks(), 4);
  // Eight groups of dp share each host's uplink.
  EXPECT_EQ(dp.hosts[0].uplink.bytes_per_us, topology.hosts[0].uplink.bytes_per_us / 8);
  const Topology wide = group_topology(topology, mesh(16, 2), 0);
  EXPECT_EQ(wide.hosts.size(), 4u);
  EXPECT_EQ(wide.hosts[0].ranks, 4);
  EXPECT_EQ(wide.hosts[0].uplink.bytes_per_us, topology.hosts[0].uplink.bytes_per_us / 2);
}

TEST(CollectiveCostModel, IsTheTimeOfTheChosenAlgorithm_OnCoresOfItsOwn) {
  const Topology topology = one_host(2, 2);
  const CollectiveCostModel cost(topology, DType::kF32);
  CollectiveRequest request;
  request.num_ranks = 2;
  request.elements = 25 << 18;
  request.in_place = request.direct = request.same_host = true;
  Topology alone = topology;
  alone.hosts[0].memory_bytes_per_us = 2 * alone.hosts[0].core_bytes_per_us;
  alone.hosts[0].cached_bytes_per_us = 2 * alone.hosts[0].cached_core_bytes_per_us;
  const auto price = cost.price(OpKind::kAllReduce, 25 << 20, mesh(2, 1), 0);
  EXPECT_EQ(price.work_us, choose(request, alone).candidates[0].us);
  EXPECT_EQ(price.latency_us, 0);
  EXPECT_LE(price.host_bytes, 2.0 * (25 << 20));
  EXPECT_EQ(cost.price(OpKind::kAllReduce, 25 << 20, mesh(2, 1), kNoAxis).work_us, 0);
  EXPECT_EQ(cost.price(OpKind::kAllReduce, 0, mesh(2, 1), 0).work_us, 0);
}

TEST(CollectiveCostModel, WaitsForTheNetwork_BetweenHosts) {
  const CollectiveCostModel cost(hosts(4, 1), DType::kF32);
  const int64_t bytes = 8 << 20;
  const auto price = cost.price(OpKind::kAllReduce, bytes, mesh(4, 1), 0);
  const double wire_us = 2 * 3.0 / 4 * static_cast<double>(bytes) / Host{}.uplink.bytes_per_us;
  EXPECT_GE(price.latency_us + price.work_us, wire_us);
  EXPECT_LE(price.latency_us + price.work_us, 2 * wire_us);
  EXPECT_GT(price.latency_us, price.work_us);
}

TEST(CollectiveCostModel, LiesOnALine_WhereManyLayoutsAreSearched) {
  const Topology topology = hosts(4, 2);
  const CollectiveCostModel each(topology, DType::kF32);
  CollectiveCostModel::LineCache memory;
  CollectiveCostModel line(topology, DType::kF32, CollectiveCostModel::Timing::kFitLine);
  line.share_lines_in(memory);
  for (const int64_t bytes : {int64_t{64} << 10, int64_t{1} << 20, int64_t{64} << 20, int64_t{1} << 30}) {
    const auto a = each.price(OpKind::kAllReduce, bytes, mesh(8, 1), 0),
               b = line.price(OpKind::kAllReduce, bytes, mesh(8, 1), 0);
    EXPECT_NEAR(b.latency_us + b.work_us, a.latency_us + a.work_us, 0.25 * (a.latency_us + a.work_us)) << bytes;
  }
  EXPECT_EQ(memory.size(), 1u);
}

}  // namespace
}  // namespace herd::planner
