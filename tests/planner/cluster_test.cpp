#include "herd/planner/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "herd/base/error.h"
#include "herd/spec/chain_table.h"
#include "herd/topology/presets.h"
#include "herd/topology/topology_text.h"

namespace herd::planner {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_cluster(text, "c.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  return "";
}

const std::string kTop = "herd_cluster = 1\ntopology = '''\nherd-topology 1\nhosts 2 ranks 4 cores 8\n'''\n";

TEST(Cluster, ComesBackFromItsOwnText) {
  Cluster cluster = parse_cluster(kTop + "[device]\nown = true\nmemory = \"80GB\"\nbytes_per_us = 2e6\n", "c.toml");
  EXPECT_EQ(cluster.device.memory_bytes, 80000000000);
  EXPECT_EQ(cluster.topology.num_ranks(), 8);
  cluster.device.matmul_flops_per_us = 1e6 / 3;
  cluster.host_memory_bytes = 12345;
  EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
}

TEST(Cluster, HasAnEfficiencyForEachPrecision_AllOfTheRateWhereItIsNotStated) {
  const auto machine = [](const std::string& device, const char* precision) {
    const Cluster cluster =
        parse_cluster(kTop +
                          "[device]\nown = true\nbytes_per_us = 2e6\nmatmul_flops_per_us = 19e6\n"
                          "matmul_16bit_flops_per_us = 312e6\nattention_16bit_flops_per_us = 300e6\n" +
                          device,
                      "c.toml");
    EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
    spec::RunFile run;
    run.strategy.precision = precision;
    return calibration_of(cluster, run, spec::resolve_mesh(run, 8));
  };
  const std::string stated = "efficiency = 0.9\nefficiency_16bit = 0.5\n";
  EXPECT_EQ(machine("", "bf16").matmul_flops_per_us, 312e6);
  EXPECT_EQ(machine(stated, "bf16").matmul_flops_per_us, 156e6);
  EXPECT_EQ(machine(stated, "fp16").attention_flops_per_us, 150e6);
  EXPECT_EQ(machine(stated, "fp32").matmul_flops_per_us, 0.9 * 19e6);
  EXPECT_EQ(machine(stated, "bf16").core_bytes_per_us, machine("", "bf16").core_bytes_per_us);
}

TEST(Cluster, IsATopologyFileToo) {
  const Topology topology = one_host(2, 4);
  EXPECT_EQ(parse_cluster(to_text(topology), "t").topology, topology);
}

TEST(Cluster, ComesBackFromItsOwnText_WhateverItsNamesHold) {
  for (const char* name : {"a\\b", "\"a\"", "it's", "'''\nx = 1", "a\nb\t"}) {
    Cluster cluster = parse_cluster(kTop + "[measured]\nloss_us = 1.0\n", "c.toml");
    cluster.name = cluster.measured->configuration = name;
    EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
    cluster.files = MeasuredFiles{name, 64, 256 << 10};
    EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
    cluster.topology.name = std::string(name).substr(0, std::string(name).find('\n'));
    EXPECT_EQ(parse_cluster(to_toml(cluster), "again"), cluster);
  }
}

TEST(Cluster, NamesKeyAndRule_WhenItIsWrong) {
  EXPECT_THAT(refusal("herd-topology 1\nhosts x"), HasSubstr("c.toml: topology, line 2: "));
  EXPECT_THAT(refusal("x = ="), HasSubstr("c.toml, line 1: is no TOML"));
  EXPECT_THAT(refusal("name = \"x\""), HasSubstr("herd_cluster = 1 must stand in it"));
  EXPECT_THAT(refusal("herd_cluster = 2"), HasSubstr("herd_cluster = 1 must stand in it"));
  EXPECT_THAT(refusal("herd_cluster = 1.0"), HasSubstr("herd_cluster = 1 must stand in it"));
  EXPECT_THAT(refusal("herd_cluster = 1e91"), HasSubstr("herd_cluster = 1 must stand in it"));
  EXPECT_THAT(refusal("herd_cluster = 1"), HasSubstr("states no topology"));
  EXPECT_THAT(refusal("herd_cluster = 1\ntopology = \"herd-topology 1\\nhosts x\""), HasSubstr("topology: "));
  EXPECT_THAT(refusal(kTop + "[device]\nmemroy = 3\n"), HasSubstr("did you mean device.memory?"));
  EXPECT_THAT(refusal(kTop + "[device]\nmatmul_flops_per_us = -1\n"), HasSubstr("expects a number from 1e-6 to"));
  for (const char* figure : {"nan", "-1", "inf", "1e304"}) {
    EXPECT_THAT(refusal(kTop + "[device]\nmatmul_flops_per_us = " + figure + "\n"),
                HasSubstr("expects a number from 1e-6"));
    EXPECT_THAT(refusal(kTop + "[measured]\nloss_us = " + figure + "\n"), HasSubstr("expects a number from 0"));
    EXPECT_THAT(refusal(kTop + "[measured]\nforward_us = [" + figure + "]\n"), HasSubstr("expects numbers from 0"));
  }
  // So slow a device would take longer than a clock can count.
  EXPECT_THAT(refusal(kTop + "[device]\nmatmul_flops_per_us = 1e-304\n"), HasSubstr("expects a number from 1e-6"));
  for (const char* share : {"0", "-0.5", "1.01", "nan", "\"most\""})
    EXPECT_THAT(refusal(kTop + "[device]\nefficiency_16bit = " + share + "\n"),
                HasSubstr("device.efficiency_16bit expects a share from 1e-6 to 1"));
  EXPECT_THAT(refusal(kTop + "[files]\nof = \"/x\"\ndepth = 0\nchunk = 4096\n"),
              HasSubstr("files.depth must be from 1 to 4096, got 0"));
  EXPECT_THAT(refusal(kTop + "[files]\nof = \"/x\"\ndepth = 16\nchunk = 5000\n"),
              HasSubstr("files.chunk must be whole blocks of 4096 bytes, at most 1 GiB, got 5000"));
  EXPECT_THAT(refusal(kTop + "[files]\ndpeth = 16\n"), HasSubstr("did you mean files.depth?"));
  EXPECT_THAT(refusal(kTop + "[device]\nown = 1\n"), HasSubstr("device.own expects true or false"));
  EXPECT_THAT(refusal(kTop + "[device]\nown = true\n"), HasSubstr("needs device.bytes_per_us"));
  EXPECT_THAT(refusal(kTop + "nmae = \"x\"\n"), HasSubstr("did you mean name?"));
}

TEST(Cluster, GrowsByWholeHosts_AndIsCutToTheRanks) {
  Cluster cluster = parse_cluster(kTop + "[device]\nown = true\nbytes_per_us = 2e6\n", "c.toml");
  EXPECT_EQ(with_ranks(cluster, 5).topology.num_ranks(), 5);
  EXPECT_EQ(with_ranks(cluster, 5).topology.hosts.size(), 2u);
  EXPECT_EQ(with_ranks(cluster, 33).topology.hosts.size(), 9u);
  EXPECT_EQ(with_ranks(cluster, 33).topology.num_ranks(), 33);
  cluster.topology.hosts[1].ranks = 2;
  EXPECT_THROW(with_ranks(cluster, 33), Error);
  EXPECT_EQ(with_ranks(small_server(2), 4).topology.hosts.size(), 1u) << "ranks share a host's cores";
}

void expect_measurements_back(const std::string& precision, const std::string& gradient_precision) {
  SCOPED_TRACE(precision + ", gradients " + gradient_precision);
  using program::OpKind;
  program::Calibration machine{.cores = 6, .threads = 3, .matmul_flops_per_us = 81234.5, .core_bytes_per_us = 7777.1};
  machine.measured_us = {{{OpKind::kForward, 0}, 1.5},
                         {{OpKind::kForward, 1}, 20.25},
                         {{OpKind::kLoss, 2}, 7},
                         {{OpKind::kBackward, 0}, 1.0 / 3},
                         {{OpKind::kBackward, 1}, 40}};
  machine.update_us_per_element = 1e-3;
  machine.norm_us_per_element = 1e-4;
  machine.reduce_us_per_byte = 1.0 / 7000;
  machine.read_us_per_sample = 2.5;
  machine.reads_ahead = true;
  spec::RunFile run;
  run.model.layers = 1;
  run.memory.device_budget = 1 << 30;
  run.strategy.precision = precision;
  run.strategy.gradient_precision = gradient_precision;
  const spec::Layout layout = spec::resolve_mesh(run, 2);
  Cluster cluster = cluster_of(machine, run, one_host(2, 2));
  cluster.measured = measured_of(machine, run, layout);
  const Cluster read = parse_cluster(to_toml(cluster), "c");
  EXPECT_EQ(read, cluster);
  const program::Calibration again = calibration_of(with_ranks(read, 2), run, layout);
  EXPECT_EQ(again.cores, machine.cores);
  EXPECT_EQ(again.threads, machine.threads);
  EXPECT_EQ(again.matmul_flops_per_us, machine.matmul_flops_per_us);
  EXPECT_EQ(again.core_bytes_per_us, machine.core_bytes_per_us);
  EXPECT_EQ(again.host_bytes_per_us, machine.host_bytes_per_us);
  EXPECT_EQ(again.op_overhead_us, machine.op_overhead_us);
  EXPECT_EQ(again.measured_us, machine.measured_us);
  EXPECT_EQ(again.update_us_per_element, machine.update_us_per_element);
  EXPECT_EQ(again.norm_us_per_element, machine.norm_us_per_element);
  EXPECT_EQ(again.reduce_us_per_byte, machine.reduce_us_per_byte);
  EXPECT_EQ(again.attention_flops_per_us, machine.attention_flops_per_us);
  EXPECT_EQ(again.read_us_per_sample, 0) << "samples of a family are next to no time";
  spec::RunFile other = run;  // of whose passes nothing was measured
  other.strategy.precision = precision == "fp32" ? "bf16" : "fp32";
  EXPECT_TRUE(calibration_of(with_ranks(read, 2), other, layout).measured_us.empty());
  EXPECT_EQ(calibration_of(with_ranks(read, 2), other, layout).update_us_per_element, 0);
  run.model.width *= 2;  // passes of another model are not those that were measured
  EXPECT_TRUE(calibration_of(with_ranks(read, 2), run, layout).measured_us.empty());
}

TEST(Cluster, GivesBackWhatARunMeasured_InItsPrecision) {
  expect_measurements_back("fp32", "same");
  expect_measurements_back("bf16", "same");
  expect_measurements_back("bf16", "fp32");
  expect_measurements_back("fp16", "same");
}

spec::RunFile run_of_chain(const std::string& block) {
  spec::ModelTable table;
  table.blocks.push_back({.name = block});
  spec::RunFile run;
  run.chain = std::make_shared<spec::ChainTable>(1, table, 2, table);
  return run;
}

// A program's own blocks have no keys of [model] that tell them apart.
TEST(Cluster, LendsTheTimesOfAProgramsOwnBlocks_ToTheirChainAlone) {
  using program::OpKind;
  program::Calibration machine{.cores = 2, .threads = 1};
  machine.measured_us = {{{OpKind::kForward, 0}, 1.5}, {{OpKind::kLoss, 1}, 7}, {{OpKind::kBackward, 0}, 3}};
  machine.update_us_per_element = 1e-3;
  machine.read_us_per_sample = 2.5;
  machine.reads_ahead = true;
  const spec::RunFile own = run_of_chain("left"), other = run_of_chain("right");
  const spec::Layout layout = spec::resolve_mesh(spec::RunFile{}, 2);
  Cluster cluster = cluster_of(machine, own, one_host(2, 2));
  cluster.measured = measured_of(machine, own, layout);
  const Cluster read = parse_cluster(to_toml(cluster), "c");
  EXPECT_EQ(read, cluster);
  EXPECT_FALSE(has_times_of_another_chain(read, own));
  EXPECT_EQ(calibration_of(read, own, layout).measured_us, machine.measured_us);
  EXPECT_EQ(calibration_of(read, own, layout).read_us_per_sample, 2.5);
  EXPECT_TRUE(calibration_of(read, own, layout).reads_ahead);
  EXPECT_TRUE(has_times_of_another_chain(read, other));
  EXPECT_TRUE(calibration_of(read, other, layout).measured_us.empty());
  EXPECT_EQ(calibration_of(read, other, layout).read_us_per_sample, 0);
  EXPECT_EQ(calibration_of(read, other, layout).update_us_per_element, 1e-3) << "an update is of any elements";
  EXPECT_TRUE(calibration_of(read, spec::RunFile{}, layout).measured_us.empty()) << "of a model of herd's own";
}

TEST(Cluster, GivesBackWhatARunOnADeviceMeasured) {
  const program::Calibration machine{.cores = 4,
                                     .matmul_flops_per_us = 4e8,
                                     .core_bytes_per_us = 2.5e6,
                                     .host_bytes_per_us = 5e6,
                                     .host_link_bytes_per_us = 5e4};
  spec::RunFile run;
  run.device.kind = "cuda";
  run.strategy.precision = "bf16";
  const Cluster cluster = cluster_of(machine, run, one_host(2, 2));
  EXPECT_EQ(parse_cluster(to_toml(cluster), "c"), cluster);
  const program::Calibration again = calibration_of(cluster, run, spec::resolve_mesh(run, 2));
  EXPECT_EQ(again.cores, machine.cores);
  EXPECT_EQ(again.matmul_flops_per_us, machine.matmul_flops_per_us);
  EXPECT_EQ(again.core_bytes_per_us, machine.core_bytes_per_us);
  EXPECT_EQ(again.host_bytes_per_us, machine.host_bytes_per_us);
  EXPECT_EQ(again.host_link_bytes_per_us, machine.host_link_bytes_per_us);
}

// What a run takes by itself follows from a simulation before anything is measured.
TEST(Cluster, OfADeviceThatNobodyMeasuredCanBeSimulated) {
  const Cluster cluster{.name = "", .topology = one_host(2, 2), .device = assumed_device()};
  const program::Calibration machine = calibration_of(cluster, {}, spec::resolve_mesh({}, 2));
  EXPECT_GT(machine.host_bytes_per_us, 0);
  EXPECT_GT(machine.core_bytes_per_us, 0);
}

// A file of an older herd says nothing of a precision.
TEST(Cluster, TakesMeasurementsForThoseOfFp32_WhereTheFileDoesNotSay) {
  EXPECT_EQ(parse_cluster(kTop + "[measured]\nloss_us = 1.0\n", "c.toml").measured->precision, "fp32");
}

TEST(Cluster, OfEveryNameInShareCanBeRead) {
  int count = 0;
  const auto folder = std::filesystem::path(std::getenv("HERD_SOURCE_DIR")) / "share/herd/clusters";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_GT(parse_cluster(text.str(), entry.path().string()).device.memory_bytes, 0);
    ++count;
  }
  EXPECT_GE(count, 2);
}

}  // namespace
}  // namespace herd::planner
