#include "herd/planner/device_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/expect_error.h"

namespace herd::planner {
namespace {

using testing::HasSubstr;

std::string text_of_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/" + path).rdbuf();
  return text.str();
}

DeviceTable known() { return parse_device_table(text_of_file("devices/devices.toml"), "devices.toml"); }

constexpr char kSmall[] = R"(herd_devices = 1
[links]
near = { gb_per_s = 10, is = "a link", source = "a data sheet" }
far = { gb_per_s = 1, is = "a network", source = "a data sheet" }
[devices.chip]
is = "a chip"
source = "a data sheet"
memory = "8GB"
gb_per_s = 100
tflops = 1
tflops_16bit = 4
efficiency = 0.5
link = "near"
host_link = "near"
network = "far"
host_memory = "64GB"
per_host = 4
per_network = 2
)";

std::string with(const std::string& before, const std::string& after) {
  std::string text = kSmall;
  return text.replace(text.find(before), before.size(), after);
}

TEST(DeviceTable, MakesAClusterOfADevice) {
  const Cluster cluster = cluster_of_devices(parse_device_table(kSmall, "small"), "chip");
  const Host& host = cluster.topology.hosts.at(0);
  EXPECT_EQ(host.ranks, 4);
  EXPECT_EQ(host.core_bytes_per_us, 20e3);
  EXPECT_EQ(host.memory_bytes_per_us, 80e3);
  EXPECT_EQ(host.uplink.bytes_per_us, 2e3);
  EXPECT_EQ(cluster.device.memory_bytes, 8'000'000'000);
  EXPECT_EQ(cluster.device.bytes_per_us, 100e3);
  EXPECT_EQ(cluster.host_memory_bytes, 64'000'000'000);
  EXPECT_EQ(cluster.device.matmul_16bit_flops_per_us, 4e6);
  EXPECT_EQ(cluster.device.efficiency_16bit, 0.5);
  EXPECT_EQ(cluster.device.host_link_bytes_per_us, 10e3);
  EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
  EXPECT_EQ(with_ranks(cluster, 16).topology.hosts.size(), 4U);
  const Cluster other = cluster_of_devices(parse_device_table(kSmall, "small"), "chip:near");
  EXPECT_EQ(other.topology.hosts.at(0).uplink.bytes_per_us, 20e3);
}

// The clusters whose steps were compared with published ones have the same figures as the table.
TEST(DeviceTable, AgreesWithTheClustersThatHerdBringsAlong) {
  for (const auto& [device, file] : {std::pair("a100", "a100-80gb"), std::pair("h100", "h100-80gb")}) {
    const Cluster cluster = cluster_of_devices(known(), device);
    const Cluster expected = parse_cluster(text_of_file("clusters/" + std::string(file) + ".toml"), file);
    EXPECT_EQ(cluster.topology.hosts.at(0), expected.topology.hosts.at(0)) << device;
    EXPECT_EQ(cluster.device, expected.device) << device;
    EXPECT_EQ(cluster.host_memory_bytes, expected.host_memory_bytes) << device;
  }
}

TEST(DeviceTable, HasTheDevicesAndLinksOfLectures) {
  const DeviceTable table = known();
  for (const char* device : {"rtx3080", "rtx3090", "p100", "v100-16gb", "v100-32gb", "a100-40gb", "a100", "a800",
                             "h100", "h800", "h200", "b200", "b300", "tpu-v4", "tpu-v5p"}) {
    ASSERT_NE(table.device(device), nullptr) << device;
    EXPECT_FALSE(table.device(device)->source.empty());
    EXPECT_GT(cluster_of_devices(table, device).topology.num_ranks(), 1);
  }
  for (const char* link : {"nvlink3", "nvlink4", "nvlink5", "pcie3", "pcie4", "pcie5", "100gbit", "200gbit", "400gbit"})
    EXPECT_NE(table.link(link), nullptr) << link;
}

TEST(DeviceTable, NamesKeyAndRule_WhenItIsWrong) {
  const auto parse = [](const std::string& text) { return [text] { parse_device_table(text, "small"); }; };
  expect_error(parse(with("herd_devices = 1", "")), Code::kBadConfig, {"is no table of devices"});
  expect_error(parse(with("gb_per_s = 100", "gb_per_s = -1")), Code::kBadConfig, {"devices.chip.gb_per_s"});
  expect_error(parse(with("link = \"near\"", "link = \"neat\"")), Code::kBadConfig, {"fix: near"});
  expect_error(parse(with("per_host = 4", "per_host = 2.5")), Code::kBadConfig, {"a whole number"});
  expect_error(parse(with("efficiency = 0.5", "efficiency = 2")), Code::kBadConfig, {"a share"});
  expect_error(parse(with("memory = \"8GB\"", "")), Code::kBadConfig, {"devices.chip.memory is missing"});
  expect_error(parse(with("tflops = 1", "tflop = 1")), Code::kBadConfig, {"devices.chip.tflops"});
  expect_error(parse(with("efficiency", "efficient")), Code::kBadConfig, {"did you mean devices.chip.efficiency?"});
  expect_error(parse("herd_devices = ["), Code::kBadConfig, {"is no TOML"});
  EXPECT_ERROR(cluster_of_devices(known(), "h2000"), Code::kBadConfig, "did you mean h200?");
  EXPECT_ERROR(cluster_of_devices(known(), "h200:100gb"), Code::kBadConfig, "did you mean 100gbit?");
}

}  // namespace
}  // namespace herd::planner
