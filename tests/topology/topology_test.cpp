#include <gmock/gmock.h>

#include "herd/base/error.h"
#include "herd/topology/discover.h"
#include "herd/topology/presets.h"
#include "herd/topology/topology_text.h"

namespace herd {
namespace {

std::string refusal(const std::function<void()>& action, Code code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.message();
  }
  return "took it";
}

TEST(Topology, NumbersRanksHostByHost) {
  Host four;
  four.ranks = 4;
  const Topology topology = spine_leaf(3, four);
  EXPECT_EQ(topology.num_ranks(), 12);
  EXPECT_EQ(topology.host_of(3), 0);
  EXPECT_EQ(topology.host_of(4), 1);
  EXPECT_EQ(first_ranks(topology, 6).hosts.size(), 2u);
  EXPECT_EQ(first_ranks(topology, 6).hosts[1].ranks, 2);
  EXPECT_THAT(refusal([&] { first_ranks(topology, 13); }, Code::kBadConfig),
              testing::HasSubstr("has 12 ranks, but 13"));
}

TEST(Topology, AnOversubscribedSpineCarriesLessThanTheUplinks) {
  EXPECT_DOUBLE_EQ(spine_leaf(4, Host{}, 2).spine_bytes_per_us, 4 * 1250 / 2.0);
  EXPECT_EQ(spine_leaf(4, Host{}).spine_bytes_per_us, 0);
}

TEST(Topology, ATorusGoesTheShortWayAndAMeshHasNone) {
  const auto hops = [](const Topology& t, int from, int to) { return route(t, from, to).size(); };
  const Topology ring = torus_network({5, 3}, Host{}), grid = mesh_network({5, 3}, Host{});
  EXPECT_EQ(hops(ring, 0, 4), 1u);
  EXPECT_EQ(hops(grid, 0, 4), 4u);
  EXPECT_EQ(hops(ring, 0, 14), 2u);
  EXPECT_EQ(hops(grid, 0, 14), 6u);
  EXPECT_EQ(route(ring, 0, 4)[0].direction, -1);
  EXPECT_EQ(route(ring, 1, 11)[0].axis, 1);
  EXPECT_EQ(grid_of(ring), (std::vector<int>{5, 3}));
}

TEST(Topology, TiersSayHowFarHostsAre) {
  Host host;
  host.ranks = 8;
  const Topology topology = racks(3, 4, host);
  EXPECT_EQ(num_distances(topology), 3);
  EXPECT_EQ(distance(topology, 5, 5), 0);
  EXPECT_EQ(distance(topology, 4, 7), 1);
  EXPECT_EQ(distance(topology, 3, 4), 2);
  EXPECT_EQ(grid_of(topology), (std::vector<int>{8, 4, 3}));
  EXPECT_EQ(grid_of(spine_leaf(3, host)), std::vector<int>{});
}

TEST(Topology, PlacementSaysWhereRanksRun) {
  Host host;
  host.ranks = 2;
  const Topology topology = placed_cyclically(spine_leaf(3, host));
  EXPECT_EQ(topology.host_of_ranks(), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(topology.host_of(4), 1);
  const Topology cut = first_ranks(topology, 4);
  EXPECT_EQ(cut.placement, (std::vector<int>{0, 1, 2, 0}));
  EXPECT_EQ(cut.hosts[0].ranks, 2);
  EXPECT_EQ(cut.hosts[2].ranks, 1);
  check(cut);
}

TEST(Found, AssemblesHostsAsTheirRanksRun) {
  const Topology block = assemble({0, 0, 1, 1}, this_host(1), {50, 125});
  EXPECT_EQ(block.hosts.size(), 2u);
  EXPECT_EQ(block.hosts[1].ranks, 2);
  EXPECT_TRUE(block.placement.empty());
  EXPECT_GE(block.hosts[0].cores, 1);
  EXPECT_EQ(assemble({7, 3, 7}, Host{}, {50, 125}).placement, (std::vector<int>{0, 1, 0}));
}

TEST(Topology, RanksTakeTurnsWhereTheyOutnumberCores) {
  EXPECT_EQ(one_host(4, 4).hosts[0].turn_us, 0);
  EXPECT_GT(one_host(3, 2).hosts[0].turn_us, 0);
  EXPECT_EQ(one_host(3, 2).hosts[0].turn_us, one_host(6, 2).hosts[0].turn_us);
}

TEST(Topology, MessagesBetweenHostsWaitForTurns_WhereRanksOutnumberCores) {
  Host host;
  host.cores = 2;
  const Link link{50, 125};
  EXPECT_EQ(assemble({0, 0, 1, 1}, host, link).hosts[0].uplink, link);
  host.cores = 1;
  const Host oversubscribed = assemble({0, 0, 1, 1}, host, link).hosts[0];
  EXPECT_EQ(oversubscribed.signal_us, one_host(2, 1).hosts[0].signal_us);
  EXPECT_EQ(oversubscribed.call_us, one_host(2, 1).hosts[0].call_us);
  EXPECT_GT(oversubscribed.uplink.latency_us,
            link.latency_us + oversubscribed.signal_us);  // a turn with a look at the network
  EXPECT_EQ(oversubscribed.uplink.message_us - link.message_us, oversubscribed.uplink.latency_us - link.latency_us);
}

TEST(Link, CarriesABurstAgain_AsSoonAsItHasSavedItUp) {
  const Link steady{.bytes_per_us = 100};
  EXPECT_EQ(steady.carry_us(8'000), 80);
  const Link bursts{.bytes_per_us = 100, .burst_bytes = 10'000, .burst_bytes_per_us = 1'000};
  EXPECT_EQ(bursts.carry_us(8'000), 40);    // half of it comes in the pause
  EXPECT_EQ(bursts.carry_us(50'000), 400);  // the pause fills the bucket, no more
  EXPECT_EQ(bursts.carry_us(0), 0);
}

TEST(Topology, PresetsHaveNames) {
  EXPECT_EQ(preset("torus:4x4x2")->axes, (std::vector<int>{4, 4, 2}));
  EXPECT_EQ(preset("mesh:3x2")->fabric, Fabric::kMesh);
  EXPECT_EQ(preset("hosts:4x8")->num_ranks(), 32);
  EXPECT_EQ(grid_of(*preset("racks:2x4x8")), (std::vector<int>{8, 4, 2}));
  EXPECT_FALSE(preset("two_hosts.topology"));
  EXPECT_FALSE(preset("a:b"));
  const std::map<std::string, std::string> rules = {
      {"torus:", "torus takes 1 to 8 sizes in [1, 65536]"},    {"torus:4y4", "torus takes 1 to 8 sizes in [1, 65536]"},
      {"hosts:4", "hosts takes 2 sizes in [1, 65536]"},        {"racks:1x2", "racks takes 3 sizes in [1, 65536]"},
      {"mesh:0x4", "mesh takes 1 to 8 sizes in [1, 65536]"},   {"torus:4x", "torus takes 1 to 8 sizes in [1, 65536]"},
      {"torus:1x1x1x1x1x1x1x1x1", "torus takes 1 to 8 sizes"}, {"hosts:65537x1", "hosts takes 2 sizes in [1, 65536]"}};
  for (const auto& [wrong, rule] : rules) {
    EXPECT_THAT(refusal([&] { preset(wrong); }, Code::kBadConfig),
                testing::AllOf(testing::HasSubstr("\"" + wrong + "\": " + rule), testing::HasSubstr("fix: torus:4x4")));
  }
}

TEST(Topology, AGroupSeesTheHostsOfItsRanks) {
  Host host;
  host.ranks = 2;
  const Topology world = spine_leaf(3, host), group = only_ranks(world, {4, 1, 5});
  EXPECT_EQ(group.host_of_ranks(), (std::vector<int>{0, 1, 0}));
  EXPECT_EQ(group.hosts[0].ranks, 2);
  check(group);
  EXPECT_EQ(only_ranks(world, {0, 1, 2, 3, 4, 5}), world);
  EXPECT_TRUE(only_ranks(world, {2, 3}).placement.empty());
}

TEST(Topology, AGroupKeepsTheTiersBetweenItsHosts) {
  Host host;
  host.ranks = 2;
  const Topology world = racks(2, 3, host, 2);  // ranks 0..5 in the first rack
  const auto of_hosts = [&](const std::vector<int>& hosts) {
    std::vector<Rank> ranks;
    for (const int at : hosts) ranks.insert(ranks.end(), {2 * at, 2 * at + 1});
    const Topology group = only_ranks(world, ranks);
    check(group);
    return group.tiers;
  };
  ASSERT_EQ(of_hosts({0, 1, 3, 4}).size(), 1u);
  EXPECT_EQ(of_hosts({0, 1, 3, 4})[0], (Tier{2, world.tiers[0].uplink}));
  EXPECT_EQ(of_hosts({3, 4, 5, 2, 1, 0})[0], world.tiers[0]);
  EXPECT_EQ(of_hosts({2, 5})[0].size, 1);
  EXPECT_TRUE(of_hosts({3, 4, 5}).empty());     // all below one switch
  EXPECT_TRUE(of_hosts({0, 1, 2, 3}).empty());  // three and one
  EXPECT_TRUE(of_hosts({0, 3, 1, 4}).empty());  // to and fro
  Topology deep = racks(4, 2, host);
  deep.tiers.push_back({2, {5, 1000}});
  const Topology half = only_ranks(deep, {8, 9, 10, 11, 12, 13, 14, 15});
  EXPECT_EQ(half.tiers, (std::vector<Tier>{deep.tiers[0]}));
  EXPECT_EQ(grid_of(half), (std::vector<int>{2, 2, 2}));
}

TEST(Topology, AGroupKeepsTheGridThatItIsABoxOf) {
  const Topology world = torus_network({4, 2, 3}, Host{});
  const auto axes = [&](const std::vector<Rank>& ranks, Fabric fabric) {
    const Topology group = only_ranks(world, ranks);
    check(group);
    EXPECT_EQ(group.fabric, fabric);
    return group.axes;
  };
  using Axes = std::vector<int>;
  EXPECT_EQ(axes({0, 1, 2, 3, 4, 5, 6, 7}, Fabric::kTorus), (Axes{4, 2}));
  EXPECT_EQ(axes({1, 5, 9, 13, 17, 21}, Fabric::kTorus), (Axes{2, 3}));
  EXPECT_EQ(axes({1, 2, 5, 6}, Fabric::kMesh), (Axes{2, 2}));
  EXPECT_EQ(axes({8, 9, 10, 11}, Fabric::kTorus), (Axes{4}));
  EXPECT_EQ(axes({0, 2, 4, 6}, Fabric::kSwitch), Axes{});  // a gap
  EXPECT_EQ(axes({0, 1, 4}, Fabric::kSwitch), Axes{});     // a corner is missing
  EXPECT_EQ(axes({1, 0, 5, 4}, Fabric::kSwitch), Axes{});  // in another order
  const Topology rows = only_ranks(mesh_network({3, 3}, Host{}), {3, 4, 5, 6, 7, 8});
  EXPECT_EQ(rows.fabric, Fabric::kMesh);
  EXPECT_EQ(rows.axes, (Axes{3, 2}));
}

TEST(TopologyText, ReadsBackFabricsTiersAndPlacement) {
  Host host;
  host.ranks = 2;
  for (const Topology& topology : {torus_network({2, 3, 2}, host), mesh_network({4, 2}, host), racks(2, 3, host, 3),
                                   placed_cyclically(spine_leaf(3, host))}) {
    EXPECT_EQ(parse_topology(to_text(topology)), topology);
  }
}

TEST(TopologyText, ReadsBackWhatItWrote) {
  Topology topology = spine_leaf(3, Host{}, 3);
  topology.hosts[1].ranks = 7;
  topology.hosts[1].uplink.latency_us = 1.0 / 3;
  EXPECT_EQ(parse_topology(to_text(topology)), topology);
}

TEST(TopologyText, NamesTheLineAndTheRule) {
  const auto message = [](const std::string& text) {
    return refusal([&] { parse_topology(text); }, Code::kCorruptFile);
  };
  EXPECT_THAT(message("nonsense"), testing::HasSubstr("line 1: the file begins with \"herd-topology 1\""));
  EXPECT_THAT(message("herd-topology 1\nhosts 1 core 3\n"),
              testing::HasSubstr("line 2: no key \"core\"; there are ranks"));
  EXPECT_THAT(message("herd-topology 1\nhosts 1 ranks x\n"),
              testing::HasSubstr("line 2: a number stands here, not \"x\""));
  EXPECT_THAT(message("herd-topology 1\nhosts 1 ranks 0\n"), testing::HasSubstr("1 <= ranks"));
  EXPECT_THAT(message("herd-topology 1\nhosts 4\nfabric torus 3 2\n"),
              testing::HasSubstr("they make 6, and there are 4"));
  EXPECT_THAT(message("herd-topology 1\nhosts 4\nfabric ring 4\n"),
              testing::HasSubstr("line 3: a fabric is torus or mesh, not \"ring\""));
  EXPECT_THAT(message("herd-topology 1\nhosts 4\ntier 3 latency_us 1 bytes_per_us 5\n"),
              testing::HasSubstr("groups of 3 hosts divide the hosts, but there are 4"));
  EXPECT_THAT(message("herd-topology 1\nhosts 2 ranks 2\nplacement 0 1 1 1\n"),
              testing::HasSubstr("host 0 has 2 ranks, but placement puts 1 there"));
  EXPECT_THAT(message("herd-topology 1\n"), testing::HasSubstr("at least one host"));
}

TEST(TopologyText, RefusesRatesAndFactorsOfNothing) {
  for (const char* key : {"core_bytes_per_us", "memory_bytes_per_us", "cached_core_bytes_per_us", "cached_bytes_per_us",
                          "peer_read_factor", "peer_write_factor", "shared_write_factor", "stage_write_factor",
                          "stage_read_factor", "message_factor", "uplink_bytes_per_us"}) {
    const std::string text = "herd-topology 1\nhosts 1 ranks 2 " + std::string(key) + " 0\n";
    EXPECT_THAT(refusal([&] { parse_topology(text); }, Code::kCorruptFile),
                testing::HasSubstr(std::string("but ") + key + " is 0"))
        << key;
  }
}

TEST(TopologyText, RefusesFiguresOfNoMachine) {
  for (const char* figure :
       {"core_bytes_per_us 1e-300", "peer_read_factor 1e+13", "signal_us 1e+308", "uplink_latency_us 1e+13",
        "uplink_core_bytes_per_us 1e-300", "uplink_burst_bytes 1e+300", "uplink_burst_bytes_per_us 1e+300"}) {
    const std::string text = "herd-topology 1\nhosts 2 ranks 2 " + std::string(figure) + "\n";
    const std::string said = refusal([&] { parse_topology(text); }, Code::kCorruptFile);
    EXPECT_THAT(said, testing::HasSubstr("<= 1e")) << figure;
    const size_t space = std::string(figure).find(' ');
    for (const std::string& part : {std::string(figure).substr(0, space), std::string(figure).substr(space + 1)}) {
      EXPECT_THAT(said, testing::HasSubstr(part)) << figure;
    }
  }
  for (const char* line : {"spine_bytes_per_us 1e-300", "tier 2 latency_us 1e+308 bytes_per_us 5",
                           "tier 2 latency_us 1 bytes_per_us 1e-300"}) {
    const std::string text = "herd-topology 1\nhosts 2 ranks 2\n" + std::string(line) + "\n";
    EXPECT_THAT(refusal([&] { parse_topology(text); }, Code::kCorruptFile), testing::HasSubstr("<= 1e12")) << line;
  }
}

TEST(TopologyText, RefusesMoreTiersAndAxesThanMachinesHave) {
  std::string tiers = "herd-topology 1\nhosts 4\n", axes = "herd-topology 1\nhosts 4\nfabric torus 4";
  for (int i = 0; i < 9; ++i) {
    tiers += "tier 1 latency_us 1 bytes_per_us 1\n";
    axes += " 1";
  }
  for (const std::string& text : {tiers, axes + "\n"}) {
    EXPECT_THAT(refusal([&] { parse_topology(text); }, Code::kCorruptFile),
                testing::HasSubstr("at most 8 tiers or axes"));
  }
}

TEST(TopologyText, RefusesTimesBelowZero) {
  for (const char* key : {"signal_us", "message_us", "step_us", "call_us", "turn_us", "uplink_latency_us"}) {
    for (const char* time : {" -1", " nan", " inf"}) {
      const std::string text = "herd-topology 1\nhosts 1 ranks 4 cores 2 " + std::string(key) + time + "\n";
      EXPECT_EQ(refusal([&] { parse_topology(text); }, Code::kCorruptFile).empty(), false) << key << time;
    }
  }
}

TEST(TopologyText, RefusesABurstThatIsSlowerThanItsLink) {
  const std::string hosts = "herd-topology 1\nhosts 2 uplink_bytes_per_us 125 uplink_burst_bytes ";
  EXPECT_EQ(parse_topology(hosts + "1000 uplink_burst_bytes_per_us 125\n").hosts[0].uplink.burst_bytes, 1'000);
  EXPECT_THAT(refusal([&] { parse_topology(hosts + "1000\n"); }, Code::kCorruptFile),
              testing::HasSubstr("a burst passes at no less than"));
  EXPECT_THAT(refusal([&] { parse_topology(hosts + "-1\n"); }, Code::kCorruptFile),
              testing::HasSubstr("0 <= uplink_burst_bytes <= 1e12"));
  EXPECT_THAT(refusal([&] { parse_topology(hosts + "0 uplink_burst_bytes_per_us nan\n"); }, Code::kCorruptFile),
              testing::HasSubstr("1e-6 <= uplink_burst_bytes_per_us <= 1e12"));
}

}  // namespace
}  // namespace herd
