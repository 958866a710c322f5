#include "herd/topology/load_topology.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "herd/topology/presets.h"
#include "herd/topology/topology_text.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

TEST(GivenTopology, IsAPresetOrAFile) {
  TemporaryFolder folder;
  const std::string file = folder / "cube.topology";
  std::ofstream(file) << "herd-topology 1\nname cube\nhosts 8\nfabric torus 2 2 2\n";
  EXPECT_EQ(load_topology(file).axes, (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(load_topology("torus:2x2x2").axes, (std::vector<int>{2, 2, 2}));
  EXPECT_ERROR(load_topology("tours:2x2"), Code::kBadConfig,
               "tours:2x2: no regular file that can be read, nor a preset\n  fix: a file of docs/formats/topology.md, "
               "or torus:4x4");
  std::ofstream(file) << "herd-topology 1\nhosts 8\nfabric torus 2 2\n";
  EXPECT_ERROR(load_topology(file), Code::kCorruptFile, file + ": topology: the axes");
}

TEST(GivenTopology, MayBeHostile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_ERROR(load_topology(folder / "fifo"), Code::kBadConfig, "fifo: no regular file that can be read", "fix:");
  EXPECT_EQ(parse_topology("herd-topology 1\n  name\nhosts 1\n").name, "");
  EXPECT_ERROR(parse_topology("herd-topology 1\nhosts 1\nhosts 2147483647\n"), Code::kCorruptFile, "1 to 100000 hosts");
  EXPECT_ERROR(parse_topology("herd-topology 1\nhosts 4294 ranks 1000000\nhosts 1 ranks 967300\n"), Code::kCorruptFile,
               "at most 100000 hosts and 1000000 ranks");
  for (const char* name : {"torus:65536x32768", "torus:40000x40000", "racks:40000x40000x1"})
    EXPECT_ERROR(load_topology(name), Code::kBadConfig, "a topology has at most 100000 hosts, not ");
}

TEST(OnlyRanks, DoNotPassTheSpineBelowOneSwitch) {
  Topology two_racks = racks(2, 2, Host{});
  two_racks.spine_bytes_per_us = 500;
  EXPECT_EQ(only_ranks(two_racks, {0, 1}).spine_bytes_per_us, 0);
  EXPECT_EQ(only_ranks(two_racks, {1, 2}).spine_bytes_per_us, 500);
}

TEST(GivenTopology, HasTheJobsRanks) {
  check_topology_of_ranks(torus_network({2, 2, 2}, Host{}), 8, {});
  EXPECT_ERROR(check_topology_of_ranks(torus_network({2, 2, 2}, Host{}), 6, {}), Code::kBadConfig,
               "has 8 ranks, but the job has 6\n  fix: 8 ranks, or a topology of 6");
}

TEST(GivenTopology, PutsNoRanksTogetherThatRunApart) {
  Host two;
  two.ranks = 2;
  const Topology hosts = spine_leaf(2, two);
  check_topology_of_ranks(hosts, 4, {7, 7, 3, 3});
  check_topology_of_ranks(hosts, 4, {});  // one host, which it cuts
  check_topology_of_ranks(placed_cyclically(hosts), 4, {0, 1, 0, 1});
  EXPECT_ERROR(check_topology_of_ranks(hosts, 4, {7, 3, 7, 3}), Code::kBadConfig,
               "has ranks 0 and 1 on one host, but they run on two\n  fix: 2 hosts or more, and ranks where "
               "they run: placement 0 1 0 1");
  EXPECT_ERROR(check_topology_of_ranks(one_host(4, 4), 4, {0, 0, 0, 1}), Code::kBadConfig,
               "has ranks 0 and 3 on one host");
}

TEST(GivenTopology, MayCutAHost) {
  Host two;
  two.ranks = 2;
  EXPECT_FALSE(cuts_hosts(spine_leaf(2, two), {5, 5, 1, 1}));
  EXPECT_TRUE(cuts_hosts(spine_leaf(2, two), {}));
  EXPECT_TRUE(cuts_hosts(torus_network({2, 2}, Host{}), {0, 1, 2, 2}));
  EXPECT_FALSE(cuts_hosts(one_host(4, 4), {}));
}

}  // namespace
}  // namespace herd
