#include <gmock/gmock.h>

#include "herd/base/error.h"
#include "herd/topology/presets.h"
#include "herd/topology/text.h"

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
  EXPECT_THAT(message("herd-topology 1\n"), testing::HasSubstr("at least one host"));
}

}  // namespace
}  // namespace herd
